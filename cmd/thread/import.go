package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"thread/compat"
	"thread/event"
)

type importCmd struct {
	Source  text     `arg:"" name:"source" help:"A SQLite thread directory."`
	To      text     `placeholder:"DIR" help:"Make a new thread there and leave the source as it is."`
	InPlace bool     `name:"in-place" help:"Make the source itself the thread (the default)."`
	OnBad   text     `name:"on-bad-row" placeholder:"fail|skip" help:"What to do about data that has no place in a thread (default fail: import nothing)."`
	Help    helpFlag `short:"h" help:"Show this help."`
	jsonFlag
}

func importVerb() *verb {
	return &verb{
		name: "import", args: "<source>",
		summary: "Take over a SQLite thread directory",
		details: `Everything is kept: ids, times, subscriptions, progress. In place, the SQLite
database stays in the directory as events.sqlite, and no other program may have
it open. An import that is interrupted changes nothing and can be run again.
See docs/MIGRATION.md.`,
		examples: `thread import ./inbox
thread import ./old/inbox --to ./inbox
thread import ./inbox --on-bad-row skip`,
		grammar: func() command { return new(importCmd) },
	}
}

func (c *importCmd) run(ctx context.Context, a *app) error {
	if c.InPlace && c.To.set {
		return usage("--to and --in-place exclude each other", "name one of them")
	}
	o := compat.ImportOptions{}
	switch c.OnBad.or("fail") {
	case "fail":
	case "skip":
		o.SkipBadRows = true
	default:
		return usage("--on-bad-row is "+c.OnBad.value, "say fail or skip")
	}
	if err := a.setDir("<source>", c.Source.value); err != nil {
		return err
	}
	source := a.dir
	if c.To.set {
		if err := a.setDir("--to", c.To.value); err != nil {
			return err
		}
		o.To = a.dir
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	bar := newBar(a.stderr, "importing")
	o.Progress = bar.set
	r, err := compat.Import(ctx, source, o)
	bar.end()
	if errors.Is(err, compat.ErrBadRows) {
		return logic(fmt.Sprintf("%s has data that has no place in a thread: %s", source, listFaults(&r)),
			"mend it, or leave it out with --on-bad-row skip; nothing was imported")
	}
	if err != nil {
		return compatFailure(ctx, err, source)
	}
	for _, f := range r.Faults {
		a.warn("left out: %s", f)
	}
	if more := r.FaultCount - int64(len(r.Faults)); more > 0 {
		a.warn("left out: %d more", more)
	}
	for _, f := range r.BadFilters {
		a.warn("consumer '%s' has a filter that is not accepted (%v): it was kept, and gets no events until it is subscribed anew", f.Consumer, f.Err)
	}
	if c.JSON {
		line := event.AppendString([]byte(`{"thread":`), a.dir)
		return a.out.text(fmt.Sprintf("%s,\"event_count\":%d,\"subscription_count\":%d,\"progress_count\":%d,\"left_out_count\":%d}\n",
			line, r.Events, r.Subscriptions, r.Consumers, r.FaultCount))
	}
	return a.out.text(fmt.Sprintf("Imported %d events, %d subscriptions and the progress of %d consumers into %s\n",
		r.Events, r.Subscriptions, r.Consumers, printable(a.dir)))
}

// listFaults fits the faults, or as many as one can read, into one line.
func listFaults(r *compat.Report) string {
	const most = 20
	var list []string
	for _, f := range r.Faults[:min(most, len(r.Faults))] {
		list = append(list, f.String())
	}
	if more := r.FaultCount - int64(len(list)); more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, "; ")
}
