package survive

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// tried counts the points that came to pass, for the report.
var tried, missed atomic.Int64

// T-23: TestCrashMatrix kills the program at every system call of every operation, and
// TestFailureMatrix lets every one fail. After each, a clean process must find
// the directory as it was before the operation or as it is after it, nothing in
// between, and continue.
func TestCrashMatrix(t *testing.T)   { matrix(t, (*calls).killPoints, "") }
func TestFailureMatrix(t *testing.T) { matrix(t, (*calls).failurePoints, failsOtherwise) }

// failsOtherwise is an operation with a third end when a call fails: a run that cannot be
// started leaves the message for later, without the feedback of an attempt.
const failsOtherwise = "outbox relay that fails"

func matrix(t *testing.T, points func(c *calls, atMost int) []point, without string) {
	needStrace(t)
	tried.Store(0)
	missed.Store(0)
	t.Cleanup(func() {
		t.Logf("%d points were tried; at %d more the call did not come", tried.Load(), missed.Load())
		if tried.Load() == 0 {
			t.Error("nothing was tried")
		}
	})
	for _, op := range operations() {
		if op.name == without {
			continue
		}
		t.Run(strings.ReplaceAll(op.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := op.start(t)
			n := 0
			for _, p := range points(&s.calls, s.density()) {
				if err := s.try(t, p); err != nil {
					t.Errorf("%v: %v", p, err)
					if n++; n == 5 {
						t.Fatal("enough")
					}
				}
			}
		})
	}
}

// try runs the operation with one fault and judges what is left.
func (s *started) try(t *testing.T, p point) error {
	s.renew(t)
	r, hit := p.inject(t, s.stdin, s.command()...)
	if strings.Contains(r.stderr, "runtime: netpollBreak write failed") {
		// The fault met Go's write to its own event descriptor, which cannot fail
		// on a real machine, and the runtime gave up.
		missed.Add(1)
		return nil
	}
	if strings.Contains(r.stderr, "runtime: unexpected error while checking standard file descriptor") {
		missed.Add(1) // it met Go's own look at its descriptors
		return nil
	}
	if strings.Contains(r.stderr, ": error while loading shared libraries: ") {
		// It met, by its number, the loader of the command that is run for the events: that
		// has failed, whatever its exit code was to be.
		missed.Add(1)
		return faultless(s.dir)
	}
	if p.call == "write" && r.code == 1 && r.stderr == "" {
		r.stderr = metTheError
	}
	if !hit {
		missed.Add(1)
	} else {
		tried.Add(1)
	}
	c, err := read(s.dir)
	if err != nil {
		return fmt.Errorf("%v, and then: %w", r, err)
	}
	if err := s.judge(r, c); err != nil {
		return fmt.Errorf("%v: %w", r, err)
	}
	if s.complete != nil && !c.same(s.before) {
		s.complete(t, s.dir)
		if c = s.look(t, s.dir); !c.same(s.after) {
			return fmt.Errorf("%v, and completed it comes to %v", r, c)
		}
	}
	if s.again && !s.savedRest(r) {
		if c, err = s.finish(t, c); err != nil {
			return err
		}
	}
	if c.none {
		if r := run(t, "", program, "init", s.dir); r.code != 0 {
			return fmt.Errorf("init cannot be run again: %v", r)
		}
	}
	if c.sqlite {
		return nil // that is all there is to say of it
	}
	if err := faultless(s.dir); err != nil {
		return err
	}
	lines := s.lines
	if s.drops {
		if lines, err = leftLines(t, s.dir, lines, c); err != nil {
			return err
		}
	}
	return works(t, s.dir, lines, c)
}

// oneError requires one line that says what went wrong, and next to it none but
// warnings.
func oneError(stderr string) error {
	n := 0
	for line := range strings.Lines(stderr) {
		switch {
		case strings.HasPrefix(line, "Error: "):
			n++
		case !strings.HasPrefix(line, "Warning: "):
			return errors.New("a line is no error and no warning")
		}
	}
	if n != 1 {
		return fmt.Errorf("%d lines are errors", n)
	}
	return nil
}

// finish runs an operation that was interrupted once more, without a fault.
func (s *started) finish(t *testing.T, c content) (content, error) {
	if c.same(s.after) && !s.same {
		return c, nil
	}
	if r := run(t, s.stdin, program, s.command()...); r.code != 0 {
		return c, fmt.Errorf("it cannot be run again: %v", r)
	}
	c, err := read(s.dir)
	if err == nil && !c.same(s.after) {
		err = fmt.Errorf("run again, it comes to %v", c)
	}
	return c, err
}

// savedRest reports whether the operation said that it saved only what it could read.
func (s *started) savedRest(r result) bool {
	return s.saves && r.code == 1 && oneError(r.stderr) == nil && strings.Contains(r.stderr, "not everything could be saved")
}

// mayBeDone reports whether a command that failed says that it may have done its work:
// that it cannot know, or that it could not print its report. A fault meets the report
// when Go has it written by another thread than in the run that was recorded, as strace
// counts the calls of each thread.
func mayBeDone(r result) bool {
	return r.code == 1 && (strings.Contains(r.stderr, "outcome unknown") || strings.Contains(r.stderr, "cannot write to stdout") ||
		strings.Contains(r.stderr, metTheError))
}

// metTheError stands for an error that could not be printed.
const metTheError = "Error: the fault met the error itself\n"

// judge compares the outcome that the program reported with what is there.
func (s *started) judge(r result, c content) error {
	if s.savedRest(r) {
		for _, e := range c.events {
			if !slices.Contains(s.after.events, e) {
				return fmt.Errorf("an event that never was: %s", e)
			}
		}
		if c.none || c.lastID < s.after.lastID {
			return fmt.Errorf("ids could be given again: %v", c)
		}
		return nil
	}
	isBefore, isAfter := c.same(s.before), c.same(s.after) || s.between != nil && c.same(*s.between)
	if !isBefore && !isAfter {
		return fmt.Errorf("neither the state before nor after: %v", c)
	}
	switch {
	case r.code == -1, r.code == 0 && s.reads: // either is right
	case r.code == 0:
		if !isAfter {
			return errors.New("exit 0, but nothing was done")
		}
	case r.code != 1:
		return fmt.Errorf("exit code %d", r.code)
	case oneError(r.stderr) != nil:
		return oneError(r.stderr)
	case mayBeDone(r): // either is right
	case !isBefore && !s.reads:
		return errors.New("exit 1, but it was done")
	}
	return nil
}
