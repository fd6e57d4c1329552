package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
	"unicode/utf8"

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
On a terminal they are coloured unless NO_COLOR is set. Following waits for the
operating system's word and holds nothing; Ctrl-C ends it with exit code 0.`,
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
	v := &tailView{a: a, json: c.JSON, colour: isTerminal(a.out.w) && os.Getenv("NO_COLOR") == ""}
	last, err := v.begin(ctx, t, c.Filter.value, n)
	for err == nil && c.Follow {
		if err = a.out.flush(); err != nil {
			break
		}
		if err = w.Wait(ctx, time.Time{}); err != nil {
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
	}
	if ctx.Err() != nil {
		err = nil // asked to end
	}
	return err
}

// tailView prints events in columns whose widths only grow.
type tailView struct {
	a            *app
	json, colour bool
	id, source   int // widths
	typ          int
}

// The widths beyond which a column does not push the others further.
const (
	widestSource = 32
	widestType   = 24
)

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
	for i := range es {
		v.widen(&es[i])
	}
	for _, e := range slices.Backward(es) {
		if err := v.print(&e); err != nil {
			return last, err
		}
	}
	return last, nil
}

func (v *tailView) widen(e *event.Event) {
	v.id = max(v.id, len(fmt.Sprint(e.ID)))
	v.source = max(v.source, min(widestSource, utf8.RuneCountInString(printable(e.Source))))
	v.typ = max(v.typ, min(widestType, utf8.RuneCountInString(printable(typeOf(e)))))
}

func (v *tailView) print(e *event.Event) error {
	if v.json {
		v.a.out.buf = append(e.AppendJSON(v.a.out.buf), '\n')
		return v.a.out.more()
	}
	v.widen(e)
	dim, bright, plain := "", "", ""
	if v.colour {
		dim, bright, plain = "\x1b[2m", "\x1b[36m", "\x1b[0m"
	}
	v.a.out.buf = fmt.Appendf(v.a.out.buf, "%*d  %s%s%s  %s%-*s%s  %-*s  %s\n", v.id, e.ID, dim, printable(e.CreatedAt), plain,
		bright, v.source, printable(e.Source), plain, v.typ, printable(typeOf(e)), printable(e.Content))
	return v.a.out.more()
}
