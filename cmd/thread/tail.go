package main

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
	"thread/watch"
)

type tailCmd struct {
	threadFlags
	Number text `name:"lines" short:"n" placeholder:"N" help:"How many events to begin with (default 20)."`
	Follow bool `short:"f" help:"Go on with new events until Ctrl-C."`
	Filter text `placeholder:"WHERE" help:"Print only events that match."`
	jsonFlag
}

func tailVerb() *verb {
	return &verb{
		name:    "tail",
		summary: "Show the last events, for eyes",
		details: `Columns are id, time, source, type and content, with control characters escaped.
On a terminal they are aligned, cut to its width, and coloured unless NO_COLOR is
set; elsewhere they are whole, with a tab in between. Following waits for the operating system's word and
holds nothing; Ctrl-C ends it with exit code 0.`,
		examples: `thread tail --thread ./inbox
thread tail --thread ./inbox -n 100 -f --filter "type = 'message'"
thread tail --thread ./inbox -n 0 -f --json | jq .content`,
		grammar: func() command { return new(tailCmd) },
	}
}

func (c *tailCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	n, ok := parseNumber(c.Number.or("20"))
	if !ok {
		return usage(fmt.Sprintf("-n %q is not a number from 0 to 9223372036854775807", c.Number.value), "give how many events to show")
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var w *watch.Watcher
	if c.Follow {
		if w, err = watch.New(a.dir); err != nil {
			return err
		}
		defer w.Close()
	}
	v := newTailView(a, c.JSON)
	last, err := v.begin(ctx, t, c.Filter.value, n)
	for err == nil && c.Follow {
		if err = a.out.flush(); err != nil {
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
		for e, eerr := range t.Events(ctx, engine.Query{After: last, Filter: c.Filter.value}) {
			if err = eerr; err != nil {
				break
			}
			last = e.ID
			if err = v.print(&e); err != nil {
				break
			}
		}
		if err == nil {
			err = v.table.flush()
		}
	}
	if ctx.Err() != nil {
		err = nil // asked to end
	}
	return err
}

// tailView prints events, as a table or as JSON.
type tailView struct {
	a     *app
	json  bool
	table table
}

func newTailView(a *app, json bool) *tailView {
	v := &tailView{a: a, json: json, table: table{out: &a.out, columns: tableColumns(a.out.w), number: true, least: []int{19, 24, 8, 8}}}
	if os.Getenv("NO_COLOR") == "" {
		v.table.styles = []string{"", "\x1b[2m", "\x1b[36m"}
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
	return last, v.table.flush()
}

func (v *tailView) print(e *event.Event) error {
	if v.json {
		v.a.out.buf = append(e.AppendJSON(v.a.out.buf), '\n')
		return v.a.out.more()
	}
	return v.table.row(strconv.FormatInt(e.ID, 10), printable(e.CreatedAt), printable(e.Source), printable(typeOf(e)), printable(e.Content))
}
