package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/durable"
	"thread/internal/pipe"
	"thread/internal/programs"
	"thread/lock"
)

// A run that has ended is left as a file in logs/runs, one each, for the history to
// take: the process that opens the history does, and thread-history is started for it after a
// failure at once, else 5 s later if this process still lives. So no run waits for a
// lock of the history, or for its repair, and thread needs no part of it. A failed run
// is on the disk before its consumer continues; one that went well is left to the
// kernel, which spares flash.

// EndedRun is the content of that file. Package history reads it.
type EndedRun struct {
	RunID       string    `json:"run_id"`
	Consumer    string    `json:"consumer"`
	Handler     string    `json:"handler"`
	Status      string    `json:"status"` // completed, failed, timed_out or cancelled, as the history has it
	Exit        string    `json:"exit"`   // see State.LastExit
	ExitCode    *int      `json:"exit_code"`
	StartedAt   time.Time `json:"started_at"`
	EndedAt     time.Time `json:"ended_at"`
	EventID     int64     `json:"event_id"` // the first unread event at the start
	Source      string    `json:"source"`   // of that event, "" when it is not stored any more
	Traceparent string    `json:"traceparent,omitempty"`
	RequestID   string    `json:"request_id,omitempty"`
	AckedFrom   int64     `json:"acked_from"`           // progress at the start
	AckedTo     int64     `json:"acked_to"`             // and after the end
	ErrorCode   string    `json:"error_code,omitempty"` // of a failure that Exit does not show
	Output      string    `json:"output"`               // the last 16 KiB
	OutputBytes int64     `json:"output_bytes"`
}

const (
	KeptOutput = 16 << 10
	// maxEnded is how many runs wait for the history at most: then the oldest go, and
	// those that went well first.
	maxEnded = 1000
	// manyEnded is with how many the history is asked to take them, whatever they were.
	manyEnded = 100
	// maxTakeWait is how long a run that went well waits for others.
	maxTakeWait = 5 * time.Second

	endedOK, endedFailed = ".ok", ".failed" // what the names end with
)

// codeDeadLetter is the error code of a run of a handler in which an event became a dead
// letter, though the handler exited with 0.
const codeDeadLetter = "dead_letter"

// The table in the thread, and its key, that says whether runs are recorded. Package
// history writes it.
const (
	runsTable  = "runs"
	runsOffKey = "off"
)

// recordEnd leaves the run to the history. What goes wrong with that is logged, and
// stops nothing.
func (s *supervisor) recordEnd(ctx context.Context, h *handler, n *note, e ending, x exit, ackedTo int64) {
	run := EndedRun{RunID: n.RunID, Consumer: h.due.Consumer, Handler: h.due.Handler, Exit: x.text, StartedAt: n.StartedAt.UTC(), EndedAt: n.EndedAt.UTC(),
		EventID: h.rec.First, AckedFrom: h.rec.From, AckedTo: ackedTo, Status: "failed"}
	failed := !e.ok
	switch dead := h.deadLetters(); {
	case e.ok && dead > 0:
		failed, run.ErrorCode = true, codeDeadLetter
	case e.ok:
		run.Status = "completed"
	case x.stopped || x.text == exitAborted:
		run.Status = "cancelled"
	case strings.HasPrefix(x.text, exitTimedOut):
		run.Status = "timed_out"
	}
	off, err := run.Describe(ctx, s.t)
	if off {
		return
	}
	if err != nil {
		s.log.Warn("supervise: consumer=%s run=%s its event cannot be read: %v", run.Consumer, run.RunID, err)
	}
	run.Output, run.OutputBytes = h.printed()
	many, err := run.Leave(s.t.Dir(), !failed)
	if err != nil {
		s.log.Warn("supervise: consumer=%s run=%s is not recorded: %v", run.Consumer, run.RunID, err)
		return
	}
	testPoint("recorded")
	s.askToTake(failed || many)
}

// Describe completes a run of the thread from its exit and its first event. It reports
// whether recording is off.
func (run *EndedRun) Describe(ctx context.Context, t *engine.Thread) (off bool, err error) {
	if code, ok := strings.CutPrefix(run.Exit, "exit "); ok {
		if c, err := strconv.Atoi(code); err == nil {
			run.ExitCode = &c
		}
	}
	err = t.View(ctx, func(tx *engine.Tx) error {
		settings, _ := tx.Records(runsTable) // to read, only the names of the engine are not free
		off = settings.Get([]byte(runsOffKey)) != nil
		e, ok, err := tx.Event(run.EventID)
		if ok {
			run.Source = e.Source
			run.Traceparent, run.RequestID = e.Trace()
		}
		return err
	})
	return off, err
}

// EndedDir is where the runs that have ended wait for the history of the thread
// directory.
func EndedDir(dir string) string { return filepath.Join(dir, "logs", "runs") }

// Leave writes the file of the run in a thread directory, synced if the run failed, and
// reports whether many files are there.
func (run *EndedRun) Leave(thread string, ok bool) (many bool, err error) {
	dir := EndedDir(thread)
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := lock.Mkdir(d); err != nil {
			return false, err
		}
	}
	// A name has its time first, so that names are in its order.
	path := filepath.Join(dir, fmt.Sprintf("%015d-%s", max(0, run.EndedAt.UnixMilli()), lock.Name(run.RunID)))
	f, err := lock.Create(path+".new", os.O_WRONLY|os.O_TRUNC|lock.NoFollow|lock.NoWait)
	if err != nil {
		return false, err
	}
	enc := json.NewEncoder(f)
	enc.SetEscapeHTML(false) // it takes up to six times the bytes
	err = enc.Encode(run)
	ending := endedOK
	if !ok {
		ending = endedFailed
		if err == nil {
			err = f.Sync()
		}
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".new", path+ending)
	}
	if err != nil {
		_ = os.Remove(path + ".new")
		return false, err
	}
	if !ok {
		err = durable.SyncDir(dir)
	}
	return thinEnded(dir), err
}

// thinEnded removes the oldest of too many runs, and reports whether many are there.
func thinEnded(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, ending := range []string{".new", endedOK, endedFailed} {
		for _, e := range entries {
			if len(entries) <= maxEnded {
				break
			}
			if strings.HasSuffix(e.Name(), ending) && os.Remove(filepath.Join(dir, e.Name())) == nil {
				// As if it had not been there. More than one only after a change of the bound.
				entries = entries[:len(entries)-1]
			}
		}
	}
	return len(entries) > manyEnded
}

// askToTake starts the program that takes the ended runs into the history, now or
// some seconds later.
func (r *dispatcher) askToTake(now bool) {
	r.taking.Lock()
	defer r.taking.Unlock()
	if !now {
		if r.takeLater == nil {
			r.takeLater = time.AfterFunc(maxTakeWait, func() { r.askToTake(true) })
		}
		return
	}
	if r.takeLater != nil {
		r.takeLater.Stop()
		r.takeLater = nil
	}
	path := programs.Find(programs.History)
	if path == "" {
		return // they are taken when it is there
	}
	if err := start(exec.Command(path, "history", "take", "--thread", r.t.Dir())); err != nil {
		r.log.Debug("supervise: the history cannot be told of runs that have ended: %v", err)
	}
}

// logSize returns how long the log of a consumer's handler is.
func (r *dispatcher) logSize(consumer string) int64 {
	info, err := os.Stat(OutputPath(r.t.Dir(), consumer))
	if err != nil {
		return 0
	}
	return info.Size()
}

// printed returns the last of what the run has printed, from the log, and how much
// that was. It is to be called when the log is written. What the log was rotated away
// from is left out.
func (h *handler) printed() (text string, bytes int64) {
	size := h.logSize(h.due.Consumer)
	if bytes = h.bytes; h.adopted {
		bytes = max(0, size-h.rec.Log)
	}
	f, err := os.Open(OutputPath(h.t.Dir(), h.due.Consumer))
	if err != nil {
		return "", bytes
	}
	defer f.Close()
	n := min(bytes, size, KeptOutput)
	tail := pipe.Tail{Most: KeptOutput}
	_, _ = io.Copy(&tail, io.NewSectionReader(f, size-n, n))
	text, _ = tail.Text()
	return text, bytes
}
