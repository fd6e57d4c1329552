package history

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"

	"thread/internal/command"
	"thread/lock"
)

// A step of [Run.Do] is a row of a run's steps. Its id is computed from the run and its key. A
// process holds the lock of the step while it works on it, and what it starts inherits a tree
// lock, as for a supervised run: see beat.go.

// DoType is the type of a step of [Run.Do].
const DoType = "do"

// OutcomeUnknown is the status of a step that has to happen once, and was begun by a process
// that died. [History.Resolve] decides.
const OutcomeUnknown = "outcome_unknown"

// The bounds of a step.
const (
	MaxStepKey    = 256      // bytes of a key
	MaxStepOutput = 32 << 20 // bytes of an output
	maxPart       = 1 << 20  // of the output that one row holds
)

type stepOptions struct {
	once bool
	argv []string
}

// StepOption says how a step is done.
type StepOption func(*stepOptions)

// Once makes a step one that is not repeated while it is unknown whether it has happened.
func Once() StepOption { return func(o *stepOptions) { o.once = true } }

// StepCommand records the command of a step.
func StepCommand(argv []string) StepOption { return func(o *stepOptions) { o.argv = argv } }

type doInput struct {
	Attempt int64    `json:"attempt"`
	Once    bool     `json:"once,omitempty"`
	Argv    []string `json:"argv,omitempty"`
}

type doOutput struct {
	ExitCode int    `json:"exit_code"`
	Output   string `json:"output"`
	Base64   []byte `json:"output_base64,omitempty"` // in place of Output, where that is not UTF-8
	Parts    int    `json:"parts,omitempty"`         // in place of both, in that many artifacts
	Error    string `json:"error,omitempty"`
}

type partData struct {
	Data []byte `json:"data"`
}

// Step is a step that this process has begun.
type Step struct {
	r         *Run
	row       StepRow
	own, tree *lock.File
}

// stepID returns the id of the row of a step of that type.
func stepID(kind, run, key string) string {
	sum := sha256.Sum256([]byte(run + "\x00" + key))
	return kind + "_" + hex.EncodeToString(sum[:16])
}

func partID(step string, i int) string { return fmt.Sprintf("%s_%d", step, i) }

func checkStepKey(key string) error {
	if len(key) > MaxStepKey {
		return invalidf("the key is %d bytes long, the limit is %d", len(key), MaxStepKey)
	}
	return required("key", key)
}

// Do returns what fn returns, and stores it. A later call with the key, of this attempt of the
// run or of a later one, returns what is stored, without fn. After an error of fn, or when this
// process dies, it calls fn again. With [Once] it then returns [ErrOutcome] after a death. A call
// waits while another process works on the step.
//
// What is stored is stored exactly once. What fn does to other systems may be repeated unless
// they take the key.
func (r *Run) Do(ctx context.Context, key string, fn func(ctx context.Context) ([]byte, error), opts ...StepOption) ([]byte, error) {
	s, output, err := r.BeginStep(ctx, key, opts...)
	if s == nil || err != nil {
		return output, err
	}
	defer s.leave() // for a panic
	output, err = fn(ctx)
	switch {
	case err != nil:
		return output, errors.Join(err, s.End(ctx, Failed, nil, 1, err.Error()))
	case len(output) > MaxStepOutput:
		err = invalidf("the output of step %q has %d bytes, the limit is %d", key, len(output), MaxStepOutput)
		return nil, errors.Join(err, s.End(ctx, Failed, nil, 1, err.Error()))
	}
	return output, s.End(ctx, Completed, output, 0, "")
}

// BeginStep is the first half of [Run.Do]: it stores that the step begins. It returns no step
// and the output of one that has ended well.
func (r *Run) BeginStep(ctx context.Context, key string, opts ...StepOption) (s *Step, output []byte, err error) {
	var o stepOptions
	for _, opt := range opts {
		opt(&o)
	}
	if err := checkStepKey(key); err != nil {
		return nil, nil, err
	}
	s = &Step{r: r, row: StepRow{ID: stepID(DoType, r.id, key)}}
	if done, output, err := s.replay(ctx); done || err != nil {
		return nil, output, err
	}
	if err := s.claim(ctx); err != nil {
		return nil, nil, err
	}
	var out *doOutput
	unknown := false
	err = r.Update(ctx, func(tx *Tx, run *RunRow) error {
		out, unknown = nil, false
		s.row = StepRow{ID: s.row.ID}
		switch known, err := tx.Get(&s.row, s.row.ID); {
		case err != nil:
			return err
		case known && s.row.Status == Completed:
			out = outputOf(&s.row)
			return nil
		case known && s.row.inDoubt():
			unknown = true
			return tx.doubt(&s.row)
		}
		input, err := json.Marshal(doInput{Attempt: run.Attempt, Once: o.once, Argv: o.argv})
		s.row = StepRow{ID: s.row.ID, RunID: r.id, Seq: s.row.Seq, StepType: DoType, Name: key, AgentName: run.EffectiveAgentName, Status: Running, Input: input}
		return errors.Join(err, tx.Put(&s.row))
	})
	if unknown && err == nil {
		err = fmt.Errorf("%w: step %q of run %q", ErrOutcome, key, r.id)
	}
	if err != nil || out != nil {
		s.leave()
	}
	if err == nil && out != nil {
		output, err = s.output(ctx, out)
		return nil, output, err
	}
	if err != nil {
		return nil, nil, err
	}
	return s, nil, nil
}

// inDoubt reports whether a step that has to happen once may have happened. Its lock is held by
// this process, or its run is not active.
func (r *StepRow) inDoubt() bool {
	var in doInput
	return r.Status == OutcomeUnknown ||
		r.StepType == DoType && r.Status == Running && json.Unmarshal(r.Input, &in) == nil && in.Once
}

// doubt stores that the outcome of a step is unknown.
func (tx *Tx) doubt(s *StepRow) error {
	if s.Status == OutcomeUnknown {
		return nil
	}
	s.Status, s.EndedAt = OutcomeUnknown, tx.now
	return tx.Put(s)
}

func outputOf(r *StepRow) *doOutput {
	out := new(doOutput)
	_ = json.Unmarshal(r.Output, out) // one that cannot be read has none
	return out
}

// replay returns the output of the step if it has ended well.
func (s *Step) replay(ctx context.Context) (done bool, output []byte, err error) {
	var out *doOutput
	err = s.r.h.View(ctx, func(tx *Tx) error {
		var row StepRow
		known, err := tx.Get(&row, s.row.ID)
		if err == nil && known && row.Status == Completed {
			out = outputOf(&row)
			_, err = tx.fenced(s.r.id, s.r.attempt)
		}
		return err
	})
	if err != nil || out == nil {
		return false, nil, err
	}
	output, err = s.output(ctx, out)
	return true, output, err
}

// fenced returns the run if it is active and in that attempt, 0 for any.
func (tx *Tx) fenced(id string, attempt int64) (row RunRow, err error) {
	if err := tx.must(&row, id); err != nil {
		return row, err
	}
	superseded := attempt != 0 && row.Attempt != attempt
	switch {
	case superseded, (row.Status == Queued || row.Status == Waiting) && row.Attempt > 0, row.Ended() && recoveredBy(&row):
		return row, fmt.Errorf("%w: %q is %s in attempt %d", ErrRecovered, id, row.Status, row.Attempt)
	case !row.Active():
		return row, fmt.Errorf("%w: %q is %s", ErrEnded, id, row.Status)
	}
	return row, nil
}

// output returns the whole output of the step.
func (s *Step) output(ctx context.Context, out *doOutput) (b []byte, err error) {
	switch {
	case out.Parts == 0 && out.Base64 != nil:
		return out.Base64, nil
	case out.Parts == 0:
		return []byte(out.Output), nil
	}
	for i := range out.Parts {
		var a ArtifactRow
		if err := s.r.h.Get(ctx, &a, partID(s.row.ID, i)); err != nil {
			return nil, err
		}
		var part partData
		if err := json.Unmarshal(a.Metadata, &part); err != nil {
			return nil, err
		}
		b = append(b, part.Data...)
	}
	return b, nil
}

// claim takes the locks of the step. It waits for another process that works on it, and ends
// what one that died has left.
func (s *Step) claim(ctx context.Context) (err error) {
	path := s.r.h.beatPath(s.row.ID)
	for {
		s.own, s.tree, err = s.r.h.supervise(s.row.ID, false)
		switch {
		case errors.Is(err, lock.ErrHeld):
			other, err := lock.Open(ctx, path, lock.Exclusive)
			if err != nil {
				return err
			}
			_ = other.Close() // it was only waited for
		case errors.As(err, new(*leftError)):
			ended, err := endLeftAt(ctx, path, &command.Left{Trees: []string{treeOf(path)}})
			if err != nil {
				return err
			}
			if !ended {
				return fmt.Errorf("%w: a command of an earlier start of the step has not ended", ErrActive)
			}
		default:
			return err
		}
	}
}

// Tree returns the locked file that the command of the step is to inherit.
func (s *Step) Tree() *os.File { return s.tree.File() }

// End stores how the step ended: as Completed with its output, Failed, or OutcomeUnknown.
func (s *Step) End(ctx context.Context, status string, output []byte, code int, message string) error {
	defer s.leave()
	out := doOutput{ExitCode: code, Error: message}
	switch {
	case len(output) > maxPart:
		for ; len(output) > 0; out.Parts++ {
			n := min(maxPart, len(output))
			if err := s.part(ctx, out.Parts, output[:n]); err != nil {
				return err
			}
			output = output[n:]
		}
	case utf8.Valid(output):
		out.Output = string(output)
	default:
		out.Base64 = output
	}
	return s.r.Update(ctx, func(tx *Tx, _ *RunRow) (err error) {
		row := s.row
		row.Status, row.EndedAt = status, tx.now
		if row.Output, err = json.Marshal(out); err != nil {
			return err
		}
		return tx.Put(&row)
	})
}

// Update runs fn in one transaction, if the run still belongs to this handle; see
// [History.Update]. It counts as a beat.
func (r *Run) Update(ctx context.Context, fn func(tx *Tx, row *RunRow) error) error {
	return r.write(ctx, r.h.Update, fn)
}

// part stores a part of a large output, as an artifact.
func (s *Step) part(ctx context.Context, i int, data []byte) error {
	meta, err := json.Marshal(partData{data})
	if err != nil {
		return err
	}
	_, err = s.r.Artifact(ctx, ArtifactRow{ID: partID(s.row.ID, i), Type: "step_output", ContentRef: "step:" + s.row.ID, Metadata: meta})
	return err
}

// leave gives the locks back.
func (s *Step) leave() {
	if s.own == nil {
		return
	}
	path := s.r.h.beatPath(s.row.ID)
	_ = os.Remove(treeOf(path)) // by name, while the lock is held
	_ = os.Remove(path)
	_ = s.tree.Close()
	_ = s.own.Close()
	s.own, s.tree = nil, nil
}

// forgetStep removes the locks of a step, unless a process has them.
func (h *History) forgetStep(id string) {
	own, tree, err := h.supervise(id, false)
	if err != nil {
		return
	}
	s := Step{r: &Run{h: h}, row: StepRow{ID: id}, own: own, tree: tree}
	s.leave()
}

// Resolve decides what became of a step whose outcome is unknown: it has happened, with that
// output, or else it is done again. It returns [ErrState] for any other step.
func (h *History) Resolve(ctx context.Context, run, key string, happened bool, output []byte) error {
	if len(output) > maxPart {
		return invalidf("the output has %d bytes, the limit is %d", len(output), maxPart)
	}
	return h.Update(ctx, func(tx *Tx) error {
		var of RunRow
		if err := tx.must(&of, run); err != nil {
			return err
		}
		var s StepRow
		if ok, err := tx.Get(&s, stepID(DoType, run, key)); err != nil {
			return err
		} else if !ok {
			return fmt.Errorf("%w: step %q of run %q", ErrNotFound, key, run)
		}
		if s.Status != OutcomeUnknown && (of.Active() || !s.inDoubt()) {
			return fmt.Errorf("%w: step %q of run %q is %s", ErrState, key, run, s.Status)
		}
		s.Status, s.EndedAt, s.Output = Failed, tx.now, nil
		if happened {
			out := doOutput{Output: string(output)}
			if !utf8.Valid(output) {
				out = doOutput{Base64: output}
			}
			var err error
			if s.Output, err = json.Marshal(out); err != nil {
				return err
			}
			s.Status = Completed
		}
		return tx.Put(&s)
	})
}

// The error codes of runs that recovery has ended.
const (
	CodeRecovery    = "worker_recovery_failed"
	CodeQuarantined = "worker_recovery_quarantined"
)

func recoveredBy(row *RunRow) bool {
	return row.ErrorCode == CodeRecovery || row.ErrorCode == CodeQuarantined
}
