package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"thread/lock"
)

// The runs of a thread's handlers are recorded by no process while they run, and left in
// logs/runs of the thread when they have ended, a file each. Opening the history takes
// them: a run, and its step "command" with what it printed.

// handlerFile is the content of that file; internal/dispatch writes it.
type handlerFile struct {
	RunID       string    `json:"run_id"`
	Consumer    string    `json:"consumer"`
	Handler     string    `json:"handler"`
	Status      string    `json:"status"`
	Exit        string    `json:"exit"`
	ExitCode    *int64    `json:"exit_code"`
	StartedAt   time.Time `json:"started_at"`
	EndedAt     time.Time `json:"ended_at"`
	EventID     int64     `json:"event_id"`
	Source      string    `json:"source"`
	Traceparent string    `json:"traceparent"`
	RequestID   string    `json:"request_id"`
	AckedFrom   int64     `json:"acked_from"`
	AckedTo     int64     `json:"acked_to"`
	ErrorCode   string    `json:"error_code"`
	Output      string    `json:"output"`
	OutputBytes int64     `json:"output_bytes"`
}

// HandlerRun is what the run of a handler has next to its row: the member "handler" of
// its metadata.
type HandlerRun struct {
	Exit      string `json:"exit,omitempty"` // "exit 3", "killed by SIGKILL", "timed out after 5m0s"
	ExitCode  *int64 `json:"exit_code"`
	AckedFrom int64  `json:"acked_from"` // the consumer's progress at the start
	AckedTo   int64  `json:"acked_to"`   // and after the end
}

// HandlerOf returns the handler of a run of a handler, and whether it is one.
func HandlerOf(r *RunRow) (h HandlerRun, ok bool) {
	if !bytes.Contains(r.Metadata, []byte(`"handler":`)) {
		return h, false
	}
	var in struct {
		Handler *HandlerRun `json:"handler"`
	}
	if json.Unmarshal(r.Metadata, &in) != nil || in.Handler == nil {
		return h, false
	}
	return *in.Handler, true
}

// keys of the runs of handlers.
func (r *RunRow) handlerKeys(k *keys) {
	if _, ok := HandlerOf(r); !ok {
		return
	}
	k.add(byHandlerAll)
	k.add(byHandlerAgent, r.AgentName)
	if r.Ended() {
		k.add(byHandlerEnded, endedClass(r.Status))
	}
}

func endedClass(status string) string {
	if status == Completed {
		return "ok"
	}
	return "failed"
}

// HandlerQuery selects runs of handlers.
type HandlerQuery struct {
	Consumer string // "" for all
	Failed   bool   // those that failed or timed out
	Limit    int64  // 0 for all
	Oldest   bool   // oldest first, where newest first is the rule
}

// HandlerRuns gives the runs of handlers that are recorded.
func (h *History) HandlerRuns(ctx context.Context, q HandlerQuery) iter.Seq2[RunRow, error] {
	p := prefix(byHandlerAll)
	switch {
	case q.Consumer != "":
		p = prefix(byHandlerAgent, q.Consumer)
	case q.Failed:
		p = prefix(byHandlerEnded, "failed")
	}
	return list(ctx, h, p, !q.Oldest, q.Limit, func(r *RunRow) bool {
		return !q.Failed || r.Status == Failed || r.Status == TimedOut
	})
}

// takeRows is how many runs are taken, and let go, in one commit.
const takeRows = 100

// TakeRuns takes the runs of handlers that have ended into the history, and lets go of
// those whose time has ended, as [RunRetention] says. It returns how many it took. One
// that is there already is not taken again, and a file that is damaged is removed.
func (h *History) TakeRuns(ctx context.Context) (taken int64, err error) {
	dir := filepath.Join(h.local(), "logs", "runs")
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return 0, err
	}
	var names []string
	for _, e := range entries { // by name, so the oldest first
		if strings.HasSuffix(e.Name(), ".ok") || strings.HasSuffix(e.Name(), ".failed") {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	keep, err := h.RunRetention(ctx)
	if err != nil {
		return 0, err
	}
	head, err := h.Head(ctx)
	for len(names) > 0 && err == nil {
		some := names[:min(len(names), takeRows)]
		names = names[len(some):]
		var n int64
		if n, err = h.takeSome(ctx, some, keep); err == nil {
			taken += n
			reached("taken")
			for _, name := range some {
				_ = os.Remove(name) // another one may have taken it; else it is passed over next time
			}
		}
	}
	if err == nil && taken > 0 {
		err = h.pruneHandlers(ctx, keep, head)
	}
	return taken, err
}

// reached is called where a test kills the process.
var reached = func(place string) {}

// takeSome is TakeRuns for some files, in one commit.
func (h *History) takeSome(ctx context.Context, names []string, keep RunRetention) (n int64, err error) {
	var files []handlerFile
	for _, name := range names {
		text, err := lock.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		var f handlerFile
		if json.Unmarshal(text, &f) == nil && f.RunID != "" && len(f.RunID) <= MaxKeyBytes/2 && f.Consumer != "" {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return 0, nil
	}
	var began []string // with a beat
	err = h.Update(ctx, func(tx *Tx) error {
		n, began = 0, nil
		for i := range files {
			took, there, err := tx.takeRun(&files[i], keep)
			if err != nil {
				return err
			}
			if took {
				n++
			}
			if took && there {
				began = append(began, files[i].RunID)
			}
		}
		return tx.expireRuns(keep)
	})
	if err != nil {
		return 0, err
	}
	for _, id := range began {
		h.forget(id)
	}
	return n, nil
}

// takeRun stores a run that has ended, unless its end is stored. It reports whether its
// beginning was.
func (tx *Tx) takeRun(f *handlerFile, keep RunRetention) (took, there bool, err error) {
	var row RunRow
	there, err = tx.Get(&row, f.RunID)
	if err != nil || there && !row.Active() {
		return false, there, err
	}
	if !there {
		row = RunRow{ID: f.RunID, TriggerType: "message", CreatedAt: f.StartedAt, StartedAt: f.StartedAt, Attempt: 1}
	}
	row.AgentName = clip(f.Consumer)
	orElse(&row.EffectiveAgentName, row.AgentName)
	if f.EventID > 0 {
		row.TriggerRef = strconv.FormatInt(f.EventID, 10)
	}
	row.InitiatorRef = clip(f.Source)
	row.Status, row.EndedAt = f.Status, f.EndedAt
	if !row.Ended() {
		row.Status = Failed
	}
	row.ErrorCode, row.ErrorMessage = "", ""
	if row.Status != Completed {
		row.ErrorCode, row.ErrorMessage = "exit", f.Exit
		orElse(&f.ErrorCode, row.ErrorCode)
		row.ErrorCode = clip(f.ErrorCode)
		if row.Status == TimedOut {
			row.ErrorCode = "timeout"
		}
		if line := lastLine(f.Output); line != "" {
			row.ErrorMessage += ": " + line
		}
	}
	if row.Metadata, err = SetMember(row.Metadata, "handler", HandlerRun{Exit: f.Exit, ExitCode: f.ExitCode, AckedFrom: f.AckedFrom, AckedTo: f.AckedTo}); err != nil {
		return false, there, err
	}
	for _, m := range [][2]string{{"traceparent", f.Traceparent}, {"request_id", f.RequestID}} {
		if m[1] == "" {
			continue
		}
		if row.Metadata, err = SetMember(row.Metadata, m[0], m[1]); err != nil {
			return false, there, err
		}
	}
	if err := tx.Put(&row); err != nil {
		return false, there, err
	}
	input, err := json.Marshal(map[string]any{"argv": []string{"sh", "-c", f.Handler}})
	if err != nil {
		return false, there, err
	}
	step := StepRow{ID: handlerStep(row.ID), RunID: row.ID, StepType: "command", Name: "sh", AgentName: row.EffectiveAgentName, Status: row.Status,
		Input: input, StartedAt: row.StartedAt, EndedAt: row.EndedAt}
	out := CommandOutput{ExitCode: f.ExitCode, Output: f.Output, Bytes: f.OutputBytes, Truncated: f.OutputBytes > int64(len(f.Output))}
	return true, there, tx.putOutput(&step, out, keep)
}

// clip returns what an index can hold of a text.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ToValidUTF8(s[:min(len(s), MaxKeyBytes)], "")
}

// lastLine returns the last line that is not blank, cut to a length that a list can
// show.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	s = strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
	if r := []rune(s); len(r) > 200 {
		s = string(r[:199]) + "…"
	}
	return s
}

// AttachHandler is [History.Attach] for the run of a consumer's handler, from within
// it: the first write makes its row.
func (h *History) AttachHandler(id, consumer string) *Run {
	return &Run{h: h, id: id, handler: consumer}
}

// beginHandler stores the row of a handler's run that is under way.
func (tx *Tx) beginHandler(id, consumer string) error {
	if _, ok := tx.versionOf(rowKey(RunEntity, id)); ok {
		return nil
	}
	row := RunRow{ID: id, TriggerType: "message", AgentName: clip(consumer), Metadata: json.RawMessage(`{"handler":{}}`)}
	return tx.begin(&row, &runOptions{})
}

// handlerRuns reports whether the handler of that run is running: it is the one of its
// consumer's record, and the consumer has a supervisor. Only that lock may be asked for,
// as who finds one of the others held leaves an event to its holder.
func (h *History) handlerRuns(row *RunRow) bool {
	name := lock.Name(row.AgentName)
	f, err := os.OpenFile(filepath.Join(h.parent, "run", name+".busy"), os.O_RDWR|lock.NoFollow|lock.NoWait, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if err := lock.TryFile(f, lock.Shared); !errors.Is(err, lock.ErrHeld) {
		return false
	}
	text, err := lock.ReadFile(filepath.Join(h.parent, "logs", "handlers", name+".run"))
	var rec struct {
		RunID string `json:"run_id"`
	}
	return err == nil && json.NewDecoder(bytes.NewReader(text)).Decode(&rec) == nil && rec.RunID == row.ID
}
