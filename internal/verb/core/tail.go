package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type tailCmd struct {
	cli.ThreadFlags
	Number  cli.Text `name:"lines" short:"n" placeholder:"N" help:"How many events to start with (default 20, with --limit 0)."`
	Last    cli.Text `name:"last-event-id" placeholder:"EVENT" help:"Start with all events after this id instead."`
	Follow  bool     `short:"f" help:"Keep printing new events until Ctrl-C."`
	Limit   cli.Text `placeholder:"N" help:"Follow, and end after N new events."`
	Timeout cli.Text `placeholder:"DURATION" help:"Follow, and end after this time: with exit code 1 if there were fewer than --limit."`
	Filter  cli.Text `placeholder:"WHERE" help:"Print only events that match."`
	cli.SeriesFlags
	parseFlag
	cli.JSONFlag
}

var tailVerb = &cli.Verb{
	Name:    "tail",
	Summary: "Show the last events, or wait for new ones",
	Details: `Columns are id, time, source, type and content, with control characters escaped.
On a terminal they are aligned, cut to its width, and coloured unless NO_COLOR is
set; elsewhere they are whole and separated by tabs. --follow waits for file
notifications, without polling or holding a lock; it ends with exit code 0 after
Ctrl-C, or when its reader has ended. To miss no event
between two calls, give --last-event-id.`,
	Exits: "0 printed; with -f also: interrupted, or its reader is gone\n1 fewer than --limit events came within --timeout",
	Examples: `thread tail --thread ./inbox
thread tail --thread ./inbox -n 100 -f --filter "type = 'message'"
thread tail --thread ./inbox --limit 1 --timeout 30s --filter "type = 'done'"
thread tail --thread ./inbox -n 0 -f --json | jq .content`,
	Grammar: func() cli.Command { return new(tailCmd) },
}

// follows is what the flags say about new events.
type follows struct {
	limit   int64         // new events, 0: all
	timeout time.Duration // 0: none
}

func (c *tailCmd) follows() (f follows, err error) {
	if c.Limit.Set {
		if f.limit, err = cli.ParseLimit(c.Limit.Value); err != nil {
			return f, err
		}
	}
	if c.Timeout.Set {
		f.timeout, err = cli.ParseDuration("--timeout", c.Timeout.Value)
	}
	c.Follow = c.Follow || c.Limit.Set || c.Timeout.Set
	return f, err
}

func (c *tailCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	where, err := c.Where(c.Filter.Value)
	if err != nil {
		return err
	}
	f, err := c.follows()
	if err != nil {
		return err
	}
	lines := "20"
	if f.limit > 0 {
		lines = "0"
	}
	n, ok := cli.ParseNumber(c.Number.Or(lines))
	if !ok {
		return cli.UsageError(fmt.Sprintf("-n %q is not a number from 0 to 9223372036854775807", c.Number.Value), "give how many events to show")
	}
	if c.Last.Set && c.Number.Set {
		return cli.UsageError("-n and --last-event-id exclude each other", "give one of them")
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	v := newTailView(a, c.JSON || c.Parse)
	v.shape = c.parseFlag
	var last int64
	if c.Last.Set {
		if last, err = cli.ParseID("--last-event-id", c.Last.Value); err != nil {
			return err
		}
	} else if last, err = v.begin(ctx, t, where, n); err != nil {
		return err
	}
	if !c.Follow {
		if c.Last.Set {
			return v.rest(ctx, t, last, where)
		}
		return nil
	}
	if err := a.Out.Flush(); err != nil {
		return err
	}
	left := f.limit
	err = await(ctx, a, t, last, where, f.timeout, func(e *event.Event) (bool, error) {
		if left--; left == 0 {
			return false, v.show(e)
		}
		return true, v.show(e)
	})
	switch {
	case errors.Is(err, errTimeout) && f.limit > 0:
		return cli.LogicError(fmt.Sprintf("%d of %d new events came within %s", f.limit-left, f.limit, c.Timeout.Value),
			"wait longer with --timeout, or see what there is with thread tail --thread "+cli.ShellWord(a.Dir))
	case errors.Is(err, errTimeout) || ctx.Err() != nil:
		return nil // asked to end
	}
	return err
}

// errTimeout ends await.
var errTimeout = errors.New("the time has ended")

// await gives fn the events after last that match where, first those that are there,
// then new ones, until it returns false. It returns errTimeout when that time has ended,
// unless it is 0, the cause of the end of ctx, and terminal.ErrReaderGone when no process reads
// stdout any more.
func await(ctx context.Context, a *cli.App, t *engine.Thread, last int64, where string, timeout time.Duration, fn func(e *event.Event) (more bool, err error)) error {
	if timeout > 0 {
		// The time begins when the thread can be read: to connect to a server may take longer.
		if err := t.View(ctx, func(*engine.Tx) error { return nil }); err != nil {
			return err
		}
		timed, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
		defer cancel()
		ctx = timed
	}
	ctx, stop := a.Out.UntilReaderGone(ctx)
	defer stop()
	for e, err := range t.Follow(ctx, last, where) {
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause // however a call puts it
			}
			return err
		}
		if more, err := fn(&e); !more || err != nil {
			return err
		}
	}
	return nil
}

// tailView prints events, as a table or as JSON.
type tailView struct {
	a     *cli.App
	json  bool
	shape parseFlag
	table terminal.Table
}

func newTailView(a *cli.App, json bool) *tailView {
	v := &tailView{a: a, json: json, table: terminal.Table{Out: &a.Out, Columns: terminal.TableColumns(a.Out.W), Number: true, Least: []int{19, 24, 8, 8}}}
	v.table.Names("ID", "TIME", "SOURCE", "TYPE", "CONTENT")
	if os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		v.table.Styles = []string{"", "\x1b[2m", "\x1b[36m"}
	}
	return v
}

// begin prints the last n events that match, and returns the id after which to
// continue.
func (v *tailView) begin(ctx context.Context, t *engine.Thread, where string, n int64) (last int64, err error) {
	// The place to continue from comes first: what is pushed now is printed later.
	if err := t.View(ctx, func(tx *engine.Tx) error { last = tx.Head(); return nil }); err != nil {
		return 0, err
	}
	var es []event.Event
	if n == 0 {
		_, err := t.Peek(ctx, engine.Query{After: last, Limit: 1, Filter: where}) // the filter may be wrong
		return last, err
	}
	for e, err := range t.Events(ctx, engine.Query{Limit: n, Filter: where, Reverse: true}) {
		if err != nil {
			return 0, err
		}
		es = append(es, e)
		last = max(last, e.ID)
	}
	for _, e := range slices.Backward(es) {
		if err := v.print(&e); err != nil {
			return last, err
		}
	}
	return last, v.table.Flush()
}

// rest prints the events after last that match.
func (v *tailView) rest(ctx context.Context, t *engine.Thread, last int64, where string) error {
	for e, err := range t.Events(ctx, engine.Query{After: last, Filter: where}) {
		if err != nil {
			return err
		}
		if err := v.print(&e); err != nil {
			return err
		}
	}
	return v.table.Flush()
}

// show prints an event at once.
func (v *tailView) show(e *event.Event) error {
	err := v.print(e)
	if err != nil {
		return err
	}
	if err = v.table.Flush(); err != nil {
		return err
	}
	return v.a.Out.Flush()
}

func (v *tailView) print(e *event.Event) error {
	if v.json {
		return v.shape.show(v.a, e)
	}
	return v.table.Row(strconv.FormatInt(e.ID, 10), terminal.Printable(e.CreatedAt), terminal.Printable(e.Source), terminal.Printable(typeOf(e)), terminal.Printable(e.Content))
}
