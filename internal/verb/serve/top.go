package serve

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/page"
	"thread/internal/terminal"
)

type topCmd struct {
	cli.ThreadFlags
	cli.RootFlag
	Once     bool     `help:"Print once, and end."`
	Interval cli.Text `placeholder:"DURATION" help:"How often to look, at least 100ms (default 2s)."`
	cli.JSONFlag
}

var topVerb = &cli.Verb{
	Name:    "top",
	Summary: "Watch threads and their consumers on a terminal",
	Details: `For each thread its events and when the last was pushed; for each consumer how many
events are unread, its dead letters, whether its handler runs, until when it waits,
and its last error. Problems come first, in the order and the words of the pages of
thread serve --ui. It needs no server, and counts again only where something was written.

Keys: j and k, or the arrows, move by a row, the space bar and b by a page, q or
Ctrl-C ends. With --once or --json, elsewhere than on a terminal, and with TERM=dumb
it prints once.`,
	Exits: "0 shown, or ended with q or Ctrl-C\n1 a thread could not be read",
	Examples: `thread top --root ~/threads
thread top --thread ./inbox --once
thread top --root ~/threads --json | jq -r 'select(.consumers[]?.dead_count > 0).thread'`,
	Grammar: func() cli.Command { return new(topCmd) },
	Errors:  errorWords,
}

// topInterval is how often top looks, and leastInterval how often it may be asked to.
const (
	topInterval   = 2 * time.Second
	leastInterval = 100 * time.Millisecond
)

func (c *topCmd) Run(_ context.Context, a *cli.App) error {
	interval := topInterval
	if c.Interval.Set {
		var err error
		if interval, err = cli.ParseDuration("--interval", c.Interval.Value); err != nil {
			return err
		}
	}
	ctx, stop := cli.Interruptible(context.Background())
	defer stop()
	w := &topWatch{c: c, a: a, look: page.NewLook(), open: map[string]*engine.Thread{}}
	defer w.close()
	out, isFile := a.Out.W.(*os.File)
	in, keys := a.Stdin.(*os.File)
	once := c.Once || c.JSON || !isFile || !terminal.IsTerminal(out) || os.Getenv("TERM") == "dumb"
	all, err := w.all(true)
	switch {
	case !slices.ContainsFunc(all, func(s page.Seen) bool { return s.Err == nil }):
		return err
	case !once && keys && terminal.IsTerminal(in):
		return w.screen(ctx, in, out, all, max(interval, leastInterval))
	}
	if perr := w.print(all); perr != nil {
		return perr
	}
	return err
}

// topWatch is what top knows of the threads that it is asked for.
type topWatch struct {
	c    *topCmd
	a    *cli.App
	look *page.Look
	open map[string]*engine.Thread
}

func (w *topWatch) close() {
	for _, t := range w.open {
		_ = t.Close() // nothing was written
	}
}

// all looks at all threads. The error is of one that could not be read, where that is
// asked for; they are returned with it.
func (w *topWatch) all(failing bool) (all []page.Seen, err error) {
	asked := map[string]bool{}
	err = w.c.Each(w.a, &w.c.Thread, true, func(dir string) error {
		asked[dir] = true
		s := w.one(dir)
		all = append(all, s)
		if failing {
			return s.Err
		}
		return nil
	})
	for dir, t := range w.open {
		if !asked[dir] { // gone from the root
			_ = t.Close()
			delete(w.open, dir)
		}
	}
	return all, err
}

func (w *topWatch) one(dir string) page.Seen {
	t := w.open[dir]
	if t == nil {
		var err error
		if t, err = w.a.Open(dir); err != nil {
			return page.Seen{Dir: w.a.Dir, Err: err}
		}
		w.open[dir] = t
	}
	s := w.look.At(t.Address(), t)
	if errors.Is(s.Err, os.ErrNotExist) {
		s.Err = engine.ErrNotThread
	}
	return s
}

// print is a look without a terminal that is kept: a table, or JSON.
func (w *topWatch) print(all []page.Seen) error {
	v := topView{now: time.Now(), columns: terminal.TableColumns(w.a.Out.W)}
	if w.c.JSON {
		for i := range v.sorted(all) {
			if err := w.a.Out.JSON(newTopThread(&all[i], v.now)); err != nil {
				return err
			}
		}
		return nil
	}
	if v.columns == 0 {
		return v.plain(&w.a.Out, all)
	}
	for _, l := range v.lines(all) {
		if _, err := io.WriteString(&w.a.Out, l.text+"\n"); err != nil {
			return err
		}
	}
	return nil
}
