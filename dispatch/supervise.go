package dispatch

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"

	"thread/engine"
	"thread/lock"
)

// superviseVerb is the hidden subcommand of the program whose arguments
// Supervise takes.
const superviseVerb = "supervise"

// What Supervise can be told to do: its first argument.
const (
	modeWork  = "work"  // run the claimed consumer, then whatever else is due
	modeGuard = "guard" // take over when the supervisor at the other end of the pipe dies
	modeWake  = "wake"  // ask notifier for a dispatch, or dispatch
	modeHost  = "host"  // guard a resident process: take over in all of its threads
)

// Supervise is the body of the hidden subcommand. It expects to be a process of
// its own, started by this package, and returns when there is nothing left to do.
func Supervise(ctx context.Context, args []string) error {
	sealDescriptors()
	if len(args) == 0 {
		return errors.New("supervise is started by dispatch, not by hand")
	}
	var dir, consumer, author string
	var o Options
	var parent, takeovers int
	flags := flag.NewFlagSet(superviseVerb, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&dir, "thread", "", "")
	flags.StringVar(&consumer, "consumer", "", "")
	flags.StringVar(&author, "author", "", "")
	flags.IntVar(&o.MaxHandlers, "max", 0, "")
	flags.IntVar(&parent, "parent", 0, "")
	flags.IntVar(&takeovers, "takeovers", 0, "")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == modeHost {
		return guardHost(ctx, parent)
	}
	t, err := openThread(ctx, dir)
	if err != nil {
		return err
	}
	defer t.Close()
	r := newRoom(t, o)
	r.takeovers = takeovers
	switch args[0] {
	case modeWork:
		c, cerr := r.inherit(ctx, consumer)
		if cerr != nil {
			r.report("supervise", consumer, cerr) // and look again
		}
		err = newSupervisor(r).work(ctx, c)
	case modeGuard:
		err = r.guard(ctx, parent)
	case modeWake:
		err = r.wakeDetached(ctx, author)
	default:
		err = errors.New("supervise: unknown mode " + args[0])
	}
	if err != nil {
		r.log.Error("supervise: %v", err)
	}
	return err
}

// inherit returns the claim that the dispatch has handed over, or nil if this
// platform cannot hand over locks and the claim has gone to somebody else.
func (r *room) inherit(ctx context.Context, consumer string) (*claim, error) {
	if !inheritsLocks {
		if err := r.prepare(); err != nil {
			return nil, err
		}
		c, _, err := r.claim(ctx, consumer, r.wantPending)
		return c, err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until nobody else has them, see startWith
	c := &claim{note: r.readNote(consumer), lock: lock.FromFile(inherited(0)), slot: lock.FromFile(inherited(1))}
	var err error
	if c.due, err = r.dueFor(ctx, consumer, 0); err != nil {
		c.drop()
		return nil, err
	}
	return c, nil
}

// openThread opens a thread such that scheduled events that a look releases on
// its way get a dispatch of their own.
func openThread(ctx context.Context, dir string) (t *engine.Thread, err error) {
	t, err = engine.Open(dir, engine.WithOnRelease(func(source string) {
		_ = Wake(ctx, t, source) // which logs it
	}))
	return t, err
}
