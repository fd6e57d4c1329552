package core

import (
	"context"
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
	"thread/internal/watch"
)

type tailCmd struct {
	cli.ThreadFlags
	Number cli.Text `name:"lines" short:"n" placeholder:"N" help:"How many events to start with (default 20)."`
	Follow bool     `short:"f" help:"Keep printing new events until Ctrl-C."`
	Filter cli.Text `placeholder:"WHERE" help:"Print only events that match."`
	cli.JSONFlag
}

func tailVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "tail",
		Summary: "Show the last events, for people",
		Details: `Columns are id, time, source, type and content, with control characters escaped.
On a terminal they are aligned, cut to its width, and coloured unless NO_COLOR is
set; elsewhere they are whole and separated by tabs. --follow waits for file
notifications, without polling or holding a lock; Ctrl-C ends it with exit code 0.`,
		Examples: `thread tail --thread ./inbox
thread tail --thread ./inbox -n 100 -f --filter "type = 'message'"
thread tail --thread ./inbox -n 0 -f --json | jq .content`,
		Grammar: func() cli.Command { return new(tailCmd) },
	}
}

func (c *tailCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	n, ok := cli.ParseNumber(c.Number.Or("20"))
	if !ok {
		return cli.UsageError(fmt.Sprintf("-n %q is not a number from 0 to 9223372036854775807", c.Number.Value), "give how many events to show")
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var w *watch.Watcher
	if c.Follow {
		if w, err = watch.New(a.Dir); err != nil {
			return err
		}
		defer w.Close()
	}
	v := newTailView(a, c.JSON)
	last, err := v.begin(ctx, t, c.Filter.Value, n)
	for err == nil && c.Follow {
		if err = a.Out.Flush(); err != nil {
			break
		}
		// A look at the time of what is scheduled next releases it.
		var next time.Time
		if next, err = t.NextScheduled(ctx); err != nil {
			break
		}
		if err = w.Wait(ctx, next); err != nil {
			break
		}
		for e, eerr := range t.Events(ctx, engine.Query{After: last, Filter: c.Filter.Value}) {
			if err = eerr; err != nil {
				break
			}
			last = e.ID
			if err = v.print(&e); err != nil {
				break
			}
		}
		if err == nil {
			err = v.table.Flush()
		}
	}
	if ctx.Err() != nil {
		err = nil // asked to end
	}
	return err
}

// tailView prints events, as a table or as JSON.
type tailView struct {
	a     *cli.App
	json  bool
	table cli.Table
}

func newTailView(a *cli.App, json bool) *tailView {
	v := &tailView{a: a, json: json, table: cli.Table{Out: &a.Out, Columns: cli.TableColumns(a.Out.W), Number: true, Least: []int{19, 24, 8, 8}}}
	if os.Getenv("NO_COLOR") == "" {
		v.table.Styles = []string{"", "\x1b[2m", "\x1b[36m"}
	}
	return v
}

// begin prints the last n events that match, and returns the id after which to
// go on.
func (v *tailView) begin(ctx context.Context, t *engine.Thread, where string, n int64) (last int64, err error) {
	// The place to go on from comes first: what is pushed now is printed later.
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

func (v *tailView) print(e *event.Event) error {
	if v.json {
		return v.a.Out.Event(e)
	}
	return v.table.Row(strconv.FormatInt(e.ID, 10), cli.Printable(e.CreatedAt), cli.Printable(e.Source), cli.Printable(typeOf(e)), cli.Printable(e.Content))
}
