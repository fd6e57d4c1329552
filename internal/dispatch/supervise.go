package dispatch

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"

	"thread/engine"
)

// superviseVerb is the hidden subcommand of the program whose arguments
// Supervise takes.
const superviseVerb = "supervise"

// The first argument of Supervise. Programs of other versions use the same.
const (
	modeWork          = "work"  // run whatever is due
	modeStandby       = "guard" // stand by, and take over when the supervisor at the other end of the link dies
	modeWake          = "wake"  // that, after a push, and tell notifier, and wait for what is scheduled soon
	modeServerStandby = "host"  // stand by for a server, and take over in all of its threads
)

// Supervise is the body of the hidden subcommand. It expects to be a process of
// its own, started by this package, and returns when there is nothing left to do.
func Supervise(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("supervise is started by dispatch, not by hand")
	}
	var dir, consumer, author string
	var o Options
	var parent, takeovers int
	var after string
	var ready bool
	for rest := args[1:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) == 1 {
			return errors.New("supervise: no value for " + rest[0])
		}
		switch name, value := rest[0], rest[1]; name {
		case "-thread":
			dir = value
		case "-consumer":
			consumer = value
		case "-author":
			author = value
		case "-after":
			after = value
		case "-ready":
			ready = true
		case "-max":
			o.MaxHandlers, _ = strconv.Atoi(value)
		case "-parent":
			parent, _ = strconv.Atoi(value)
		case "-takeovers":
			takeovers, _ = strconv.Atoi(value)
		default:
			return errors.New("supervise: unknown argument " + name)
		}
	}
	s := &supervisor{}
	if ready {
		s.ready = readyFile()
	}
	if consumer != "" {
		// A dispatch of an earlier version hands two locks over, and has let go of them
		// itself when this pipe ends. They are among what is closed now.
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	closeInherited()
	if args[0] == modeServerStandby {
		return runServerStandby(ctx, parent)
	}
	t, err := openThread(ctx, dir)
	if err != nil {
		return err
	}
	defer t.Close()
	r := newDispatcher(t, o)
	r.takeovers, r.after = takeovers, after
	switch args[0] {
	case modeWork, modeWake:
		adoptOrphans()
		s.begin(r)
		s.first = true
		if args[0] == modeWork {
			err = s.work(ctx)
		} else {
			err = s.wake(ctx, author)
		}
	case modeStandby:
		err = r.runStandby(ctx, parent)
	default:
		err = errors.New("supervise: unknown mode " + args[0])
	}
	if err != nil {
		r.log.Error("supervise: %v", err)
	}
	return err
}

// openThread opens a thread so that scheduled events that a look releases on
// its way get a separate dispatch. It is one whose handlers this process may
// run.
func openThread(ctx context.Context, dir string) (t *engine.Thread, err error) {
	if err := Own(dir); err != nil {
		return nil, err
	}
	t, err = engine.Open(dir, OwnFile(dir), engine.WithOnRelease(func(source string) {
		_ = Wake(ctx, t, source) // which logs it
	}))
	return t, err
}
