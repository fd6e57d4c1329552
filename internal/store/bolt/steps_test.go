package bolt_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/index"
	"thread/internal/faults"
	"thread/internal/fsck"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// errStep is damage that shows in one step only.
var errStep = fmt.Errorf("%w: on purpose", index.ErrDamaged)

// stepDepth is how many callers name the place of a step.
const stepDepth = 24

// place is where a program looks at a page or writes to a table, by its callers.
type place [stepDepth]uintptr

// places are the places of an operation.
type places map[place]bool

// during calls step at each step of op, with the callers up to op.
func during(op func(), step func(at place) error) {
	var above [64]uintptr
	base := runtime.Callers(1, above[:]) + 1 // with op
	defer index.FailSteps(func() error {
		var all [128]uintptr
		n := runtime.Callers(3, all[:])
		var at place
		copy(at[:], all[:max(0, n-base)])
		return step(at)
	})()
	op()
}

// stepsOf runs op and returns the places of its steps.
func stepsOf(op func()) places {
	found := places{}
	during(op, func(at place) error {
		found[at] = true
		return nil
	})
	return found
}

// failStep has the first step at a place fail.
func failStep(where place, op func()) (failed bool) {
	during(op, func(at place) error {
		if at != where || failed {
			return nil
		}
		failed = true
		return errStep
	})
	return failed
}

func (p place) String() (text string) {
	frames := runtime.CallersFrames(p[:])
	for {
		f, more := frames.Next()
		text += fmt.Sprintf("\n\t%s:%d %s", filepath.Base(f.File), f.Line, f.Function)
		if !more {
			return text
		}
	}
}

// deed is something done to a thread, and what it did.
type deed struct {
	do func(th *engine.Thread) (string, error)
	// then is asked without damage, also after an error; nil where the answer says all.
	then   func(th *engine.Thread) (string, error)
	within string // fail only the places below this function
}

// deeds are what is done while damage shows.
func deeds() map[string]deed {
	all := map[string]deed{}
	for name, ask := range questions() {
		all[name] = deed{do: ask}
	}
	for _, name := range []string{"copy", "batch", "push"} { // they ask more when it is done
		delete(all, name)
	}
	keep := int64(400)
	for name, d := range map[string]deed{
		"ack":     {do: done(func(th *engine.Thread) error { return th.Ack(ctx, "c", 1300) }), then: progressOf},
		"compact": {do: done(func(th *engine.Thread) error { _, err := th.Compact(ctx); return err }), then: held},
		"prune": {do: done(func(th *engine.Thread) error {
			_, err := th.Prune(ctx, engine.Retention{KeepLast: &keep})
			return err
		}), then: held},
		"copy": {do: done(func(th *engine.Thread) error {
			_, err := copyTo(ctx, th.Dir(), bolt.CopyOptions{})
			return err
		}), then: held},
		"lines off": {do: done(func(th *engine.Thread) error { return dirOf(th).SetLines(ctx, false) }), then: linesOff},
		"lines on":  {do: done(func(th *engine.Thread) error { return dirOf(th).SetLines(ctx, true) }), then: linesOff},
		"duplicate": {do: func(th *engine.Thread) (string, error) {
			e, err := th.Push(ctx, event.Draft{Source: "source 3", Type: "t2", DedupeKey: "key 100", Content: "other"})
			return fmt.Sprint(e.ID, e.Content), err
		}},
		"push": {do: func(th *engine.Thread) (string, error) {
			e, err := th.Push(ctx, event.Draft{Source: "source 3", Type: "t2", Content: large})
			return fmt.Sprint(e.ID), err
		}, then: newest},
		"batch": {do: func(th *engine.Thread) (string, error) {
			s, err := openStore(th.Dir(), bolt.Options{MaxGroup: 4})
			if err != nil {
				return "", err
			}
			defer s.Close()
			b, err := s.PushAll(ctx, drafts(9, large))
			return fmt.Sprint(b.First, b.Last), err
		}, then: newest},
		"long push": {do: func(th *engine.Thread) (string, error) {
			s, err := openStore(th.Dir(), bolt.Options{MaxGroup: 4})
			if err != nil {
				return "", err
			}
			defer s.Close()
			ds := slices.Repeat([]event.Draft{draft("long")}, 10)
			ds[3].DedupeKey, ds[3].Source, ds[3].Type = "key 100", "source 3", "t2"
			p, err := s.Push(ctx, ds)
			return fmt.Sprint(len(p.Events), p.Duplicates), err
		}},
		"a large record": {do: done(func(th *engine.Thread) error {
			return th.Update(ctx, func(tx *engine.Tx) error {
				r, err := tx.Records("mine")
				if err != nil {
					return err
				}
				return r.Put([]byte("large"), []byte(large))
			})
		}), then: questions()["records"]},
		"restore":                   {do: restoreAll(false, false, large), then: restored},
		"restore over another kind": {do: restoreAll(true, false, large), then: restored},
		"restore without lines":     {do: restoreAll(false, true, ""), then: restored},
		"a long restore":            {do: restoreAll(false, true, strings.Repeat("long ", 9<<20/5)), then: restored, within: "(*Restore).wrote"},
		"init": {do: done(func(th *engine.Thread) error {
			_, err := engine.Init(filepath.Join(th.Dir(), "in", "t"))
			return err
		}), then: restored},
	} {
		all[name] = d
	}
	maps.Copy(all, linesDeeds())
	return all
}

func done(do func(th *engine.Thread) error) func(th *engine.Thread) (string, error) {
	return func(th *engine.Thread) (string, error) { return "", do(th) }
}

func progressOf(th *engine.Thread) (string, error) {
	info, err := th.Info(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(info.Subscriptions[0].LastAcked), nil
}

// held is all that a thread holds, and whether it is sound.
func held(th *engine.Thread) (text string, err error) {
	for _, name := range []string{"events", "by type", "ids", "counts", "records"} {
		answer, err := questions()[name](th)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		text += answer + " "
	}
	report, err := fsck.Check(ctx, th)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(text, report.Faults), nil
}

// newest is how many events there are, and what the newest are.
func newest(th *engine.Thread) (text string, err error) {
	info, err := th.Info(ctx)
	if err != nil {
		return "", err
	}
	es, err := th.Peek(ctx, engine.Query{Reverse: true, Limit: 3})
	text = fmt.Sprint(info.Stored)
	for i := range es {
		text += fmt.Sprint(" ", es[i].ID, len(es[i].Content))
	}
	return text, err
}

func linesOff(th *engine.Thread) (text string, err error) {
	err = view(th, func(tx *bolt.Tx) error {
		text = fmt.Sprint(bolt.LinesOff(tx))
		return nil
	})
	return text, err
}

// TestSteps: in each operation, each place that looks at a page or writes to a table meets
// damage once. The call returns ErrCorrupt and has changed nothing, or gives the answer that
// it gives without damage. The next try gives that answer.
func TestSteps(t *testing.T) {
	sound := filepath.Join(faults.Dir(t), "t")
	everything(t, sound)
	failEachStep(t, sound, deeds())
}

// TestStepsBehindABatch is TestSteps for what a batch that was cut short has left.
func TestStepsBehindABatch(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	everything(t, dir)
	s, err := openStore(dir, bolt.Options{MaxGroup: 560})
	must(t, err)
	var ds []event.Draft
	for i := range 561 {
		ds = append(ds, event.Draft{Source: fmt.Sprint("other ", i%9), Type: fmt.Sprint("other ", i%3), Content: fmt.Sprint("lost ", i), DedupeKey: fmt.Sprint("other ", i)})
	}
	ds[7].Content = large
	must(t, bolt.CutBatch(ctx, s, ds))
	all := deeds()
	maps.DeleteFunc(all, func(name string, _ deed) bool {
		return !slices.Contains([]string{"push", "batch", "prune", "snapshot", "lines off"}, name)
	})
	failEachStep(t, dir, all)
}

// stepped is a thread that is made again for each step.
type stepped struct {
	sound, dir string
	kept       bool
}

func (s *stepped) open(t *testing.T) *engine.Thread {
	must(t, os.RemoveAll(s.dir))
	must(t, os.CopyFS(s.dir, os.DirFS(s.sound)))
	var o []engine.Option
	if s.kept {
		o = append(o, engine.WithKeepOpen())
	}
	th, err := engine.Open(s.dir, o...)
	must(t, err)
	return th
}

func failEachStep(t *testing.T, sound string, deeds map[string]deed) {
	for name, d := range deeds {
		t.Run(name, func(t *testing.T) {
			asks := d.then == nil
			if asks {
				d.then = func(*engine.Thread) (string, error) { return "", nil }
			}
			for _, kept := range []bool{false, true} {
				if kept && testing.Short() {
					continue
				}
				slice := time.Hour
				if kept && asks { // the others would take minutes
					slice = 0
				}
				withSliceTime(t, slice) // else an operation takes other ways on a busy host
				s := &stepped{sound, filepath.Join(faults.Dir(t), "t"), kept}
				d.failEach(t, s)
			}
		})
	}
}

// outcome is what a deed returned, and what it did.
type outcome struct{ is, did string }

func (d *deed) outcome(t *testing.T, th *engine.Thread, is string) outcome {
	t.Helper()
	did, err := d.then(th)
	must(t, err)
	return outcome{is, did}
}

func (d *deed) failEach(t *testing.T, s *stepped) {
	th := s.open(t)
	before := d.outcome(t, th, "")
	must(t, th.Close())
	th = s.open(t)
	var is string
	var err error
	all := stepsOf(func() { is, err = d.do(th) })
	must(t, err)
	want := d.outcome(t, th, is)
	must(t, th.Close())
	met := 0
	for at := range all {
		if d.within != "" && !strings.Contains(at.String(), d.within) {
			met++
			continue
		}
		if testing.Short() && rand.IntN(16) != 0 {
			continue
		}
		th := s.open(t)
		failed := failStep(at, func() { is, err = d.do(th) })
		if failed {
			met++
		}
		got := d.outcome(t, th, is)
		switch {
		case err == nil && got != want:
			t.Errorf("%.300q without an error, want %.300q%s", got, want, at)
		case err != nil && (!failed || !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, errStep)): // the latter of a copy
			t.Errorf("%v%s", err, at)
		case err != nil && got.did != before.did && got.did != want.did:
			t.Errorf("%.300q after %v, before it %.300q%s", got.did, err, before.did, at)
		case err != nil:
			is, err = d.do(th)
			if got := d.outcome(t, th, is); got != want || err != nil {
				t.Errorf("again it is %.300q, want %.300q, %v%s", got, want, err, at)
			}
		}
		must(t, th.Close())
	}
	// How wide a filter's window grows depends on time, and so do a few places.
	if t.Logf("%d of %d places, kept open: %v", met, len(all), s.kept); !testing.Short() && met < len(all)*9/10 {
		t.Errorf("only %d of %d places were met again", met, len(all))
	}
}
