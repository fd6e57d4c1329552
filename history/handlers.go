package history

import (
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

	"thread/internal/watch"
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

// expireRuns lets go of runs of handlers whose time has ended, some at once, except for
// those to which a handler has added more than its output.
func (tx *Tx) expireRuns(keep RunRetention) error {
	for class, d := range map[string]time.Duration{"ok": keep.OK, "failed": keep.Failed} {
		p := prefix(byHandlerEnded, class)
		var over []string
		for rec := range tx.by.Ascend(p, after(p)) {
			var row RunRow
			id := string(rec.Value)
			if err := tx.must(&row, id); err != nil {
				return err
			}
			if tx.now.Sub(row.EndedAt) <= d || len(over) >= takeRows {
				break
			}
			if !tx.hasMore(&row) {
				over = append(over, id)
			}
		}
		for _, id := range over {
			if err := tx.deleteAll(RunStep, tx.ids(prefix(byStepRun, id))); err != nil {
				return err
			}
			if err := tx.Delete(RunEntity, id); err != nil {
				return err
			}
		}
	}
	return nil
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

var errEnough = errors.New("the reader has ended")

// FollowHandlerRuns gives the runs of handlers that end from now on, as they end, each
// once, until ctx ends, whose cause is then the last element. An element whose ID is
// empty says that something else may have changed: a handler has started or printed.
func (h *History) FollowHandlerRuns(ctx context.Context, q HandlerQuery) iter.Seq2[RunRow, error] {
	return func(yield func(RunRow, error) bool) {
		err := h.followHandlerRuns(ctx, q, func(r RunRow) bool { return yield(r, nil) })
		if err != nil && !errors.Is(err, errEnough) {
			yield(RunRow{}, err)
		}
	}
}

func (h *History) followHandlerRuns(ctx context.Context, q HandlerQuery, yield func(RunRow) bool) error {
	if _, err := h.thread(true); err != nil {
		return err
	}
	if h.of != nil {
		return h.followOnServer(ctx, q, yield)
	}
	logs := filepath.Join(h.parent, "logs")
	w, err := watch.NewDirs() // before the first look: nothing falls between
	if err != nil {
		return err
	}
	defer w.Close()
	for _, dir := range []string{logs, filepath.Join(logs, "handlers"), filepath.Join(logs, "runs")} {
		if err := lock.Mkdir(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{filepath.Join(logs, "handlers"), filepath.Join(logs, "runs"), h.dir} {
		if err := w.Add(dir); err != nil {
			return err
		}
	}
	notices := make(chan struct{}, 1)
	go func() {
		defer close(notices)
		for {
			if _, err := w.Next(); errors.Is(err, watch.ErrClosed) {
				return
			}
			select { // one look answers all of them
			case notices <- struct{}{}:
			default:
			}
		}
	}()
	after, err := h.Head(ctx)
	if err != nil {
		return err
	}
	for {
		if _, err := h.TakeRuns(ctx); err != nil {
			return err
		}
		if after, err = h.endedHandlers(ctx, q, after, yield); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case _, open := <-notices:
			if !open {
				return watch.ErrClosed
			}
		}
	}
}

// followOnServer is followHandlerRuns for a thread on a server.
func (h *History) followOnServer(ctx context.Context, q HandlerQuery, yield func(RunRow) bool) error {
	t, err := h.thread(true)
	if err != nil {
		return err
	}
	w, err := t.Watch() // before the first look: nothing falls between
	if err != nil {
		return err
	}
	defer w.Close()
	after, err := h.Head(ctx)
	for err == nil {
		if after, err = h.endedHandlers(ctx, q, after, yield); err == nil {
			err = w.Wait(ctx, time.Time{})
		}
	}
	return err
}

// Head returns the id of the newest history event, 0 when there is none.
func (h *History) Head(ctx context.Context) (id int64, err error) {
	err = h.View(ctx, func(tx *Tx) error {
		id = tx.e.Head()
		return nil
	})
	return id, err
}

// endedHandlers gives the runs of handlers that have ended since a history event, and then one
// without an id. It returns the newest history event that it read.
func (h *History) endedHandlers(ctx context.Context, q HandlerQuery, after int64, yield func(RunRow) bool) (int64, error) {
	for c, err := range h.Changes(ctx, after, "type = 'run'") {
		if err != nil {
			return after, err
		}
		after = c.ID
		var row RunRow
		if c.Op != OpUpsert || ParseJSON(&row, c.Row) != nil || !row.Ended() {
			continue
		}
		_, is := HandlerOf(&row)
		if !is || q.Consumer != "" && row.AgentName != q.Consumer || q.Failed && row.Status != Failed && row.Status != TimedOut {
			continue
		}
		if !yield(row) {
			return after, errEnough
		}
	}
	if !yield(RunRow{}) {
		return after, errEnough
	}
	return after, nil
}
