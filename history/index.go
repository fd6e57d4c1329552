package history

import (
	"bytes"
	"encoding/binary"

	"thread/engine"
)

// The table "by" holds the keys of all indexes. A key is
//
//	index   1 byte
//	part    the bytes of a text, a zero byte in it followed by 0xFF,
//	        and two zero bytes; as often as the index has parts
//	number  8 bytes, big-endian
//
// and its value the id of the row. The number is the order of the rows: the number of the
// history event with which the row came to be, or, in the indexes by the last change,
// the number of the event that changed it last. No clock orders rows.
const (
	byWorkspacePath   = 'a' // root_path; by last change
	byWorkspaceRef    = 'b' // external_ref
	byWorkspaceStatus = 'c' // status; by last change

	bySessionWorkspace = 'd'
	bySessionSubject   = 'e'
	bySessionStatus    = 'f' // by last change

	byMessageSession = 'g'
	byMessageRun     = 'h'

	byRunSession   = 'i'
	byRunWorkspace = 'j'
	byRunInitiator = 'k'
	byRunStatus    = 'l'
	byRunParent    = 'm'

	byStepRun       = 'n' // the number is seq
	byToolRun       = 'o'
	byToolName      = 'p' // source_type, tool_name
	byHookRun       = 'q'
	byActionRun     = 'r'
	byArtifactRun   = 's'
	byLimit         = 't'
	bySessionAll    = 'u'
	byRunAll        = 'v'
	byWorkspaceAll  = 'w'
	byToolAll       = 'x'
	byHistoryOther  = 'y' // the history events of a workspace that is not the directory's own
	byRunQueued     = 'A' // session: its queue
	byRunActive     = 'B' // session
	byActiveSubject = 'C' // initiator
	byActiveSpace   = 'D' // workspace
	byActiveAll     = 'E'
	byReadyOld      = 'F' // byReady, as older versions of this program wrote it: without a part
	byReadyHead     = 'G' // session: the key of its run in byReady; no separate number
	byReady         = 'H' // agent: runs that may be started, of a session one at most; an inverted priority is before the number
	byDue           = 'I' // milliseconds since 1970, in place of a part: runs that are not due
	byRunHeld       = 'J' // session: a run between two attempts
	byAfter         = 'K' // run: those that wait for its end
	byGroupOpen     = 'L' // group: its runs that have not ended
	byGroupDone     = 'M' // group: its runs that have completed
	byGroupFailed   = 'N' // group: its other runs
	byGroupWaits    = 'O' // group: runs that wait for its end
	byWaitEvent     = 'U' // the runs that wait for an event
	byUnique        = 'T' // key: the run that has it and has not ended
	byHandlerAll    = 'P' // the runs of handlers
	byHandlerAgent  = 'Q' // agent
	byHandlerEnded  = 'R' // "ok" or "failed"
	byHandlerOutput = 'S' // agent: the steps that store the output of a failed run
)

// add adds the key of the row in an index ordered by when rows came to be.
func (k *keys) add(index byte, parts ...string) {
	k.list = append(k.list, indexKey(index, k.first, parts...))
}

// some is add for an index that leaves out rows where the part is empty.
func (k *keys) some(index byte, part string) {
	if part != "" {
		k.add(index, part)
	}
}

// changed adds the key of the row in an index ordered by the last change.
func (k *keys) changed(index byte, part string) {
	if part != "" {
		k.list = append(k.list, indexKey(index, k.latest, part))
	}
}

// prefix returns what the keys of an index with these parts begin with.
func prefix(index byte, parts ...string) []byte {
	n := 1 + 8
	for _, p := range parts {
		n += len(p) + 2
	}
	b := append(make([]byte, 0, n), index)
	for _, p := range parts {
		for i := range len(p) {
			if b = append(b, p[i]); p[i] == 0 {
				b = append(b, 0xFF)
			}
		}
		b = append(b, 0, 0)
	}
	return b
}

func indexKey(index byte, number int64, parts ...string) []byte {
	return binary.BigEndian.AppendUint64(prefix(index, parts...), uint64(number))
}

// after returns the first key behind all that begin with prefix.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// numberOf returns the number at the end of a key.
func numberOf(key []byte) int64 {
	if len(key) < 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(key[len(key)-8:]))
}

func (r *WorkspaceRow) keys(k *keys) {
	k.changed(byWorkspacePath, r.RootPath)
	k.some(byWorkspaceRef, r.ExternalRef)
	k.changed(byWorkspaceStatus, r.Status)
	k.add(byWorkspaceAll)
}

func (r *SessionRow) keys(k *keys) {
	k.add(bySessionAll)
	k.add(bySessionWorkspace, r.WorkspaceID)
	k.some(bySessionSubject, r.SubjectRef)
	k.changed(bySessionStatus, r.Status)
}

func (r *MessageRow) keys(k *keys) {
	k.add(byMessageSession, r.SessionID)
	k.some(byMessageRun, r.RunID)
}

func (r *ToolCallRow) keys(k *keys) {
	k.add(byToolAll)
	k.some(byToolRun, r.RunID)
	k.add(byToolName, r.SourceType, r.ToolName)
}

func (r *HookRunRow) keys(k *keys) { k.some(byHookRun, r.RunID) }

func (r *ActionRunRow) keys(k *keys) { k.some(byActionRun, r.RunID) }

func (r *ArtifactRow) keys(k *keys) { k.some(byArtifactRun, r.RunID) }

// The states of a run.
const (
	Queued      = "queued"
	Running     = "running"
	WaitingTool = "waiting_tool"
	Waiting     = "waiting" // for what Run.Wait says: it has no process
	Completed   = "completed"
	Failed      = "failed"
	Cancelled   = "cancelled"
	TimedOut    = "timed_out"
)

func endedClass(status string) string {
	if status == Completed {
		return "ok"
	}
	return "failed"
}

// Active reports whether the run has been started, and has neither ended nor left its process.
func (r *RunRow) Active() bool { return r.Status == Running || r.Status == WaitingTool }

// Ended reports whether the run has ended.
func (r *RunRow) Ended() bool {
	return r.Status == Completed || r.Status == Failed || r.Status == Cancelled || r.Status == TimedOut
}

func contains(list [][]byte, key []byte) bool {
	for _, k := range list {
		if bytes.Equal(k, key) {
			return true
		}
	}
	return false
}

// empty deletes all records of a table.
func empty(table *engine.Records) error {
	for {
		var keys [][]byte
		for rec := range table.Ascend(nil, nil) {
			if keys = append(keys, bytes.Clone(rec.Key)); len(keys) == 1000 {
				break
			}
		}
		if len(keys) == 0 {
			return nil
		}
		for _, k := range keys {
			if err := table.Delete(k); err != nil {
				return err
			}
		}
	}
}
