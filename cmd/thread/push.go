package main

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"strconv"
	"time"

	"thread/engine"
	"thread/event"
)

type pushCmd struct {
	threadFlags
	Source  text `placeholder:"NAME" help:"Who sends the event. Required without --batch."`
	Type    text `placeholder:"TYPE" help:"What the event is. Required without --batch."`
	Subtype text `placeholder:"TYPE" help:"What the event is more precisely."`
	Content text `placeholder:"TEXT" help:"The payload, up to 64 MiB; \"\" is allowed, - reads it from stdin. Required without --batch."`
	File    text `name:"content-file" placeholder:"FILE" help:"Read the payload from this file, instead of --content."`
	Key     text `name:"dedupe-key" placeholder:"KEY" help:"Store nothing if an event was pushed with this key before, and print the first one's id."`
	Window  text `name:"dedupe-window" placeholder:"DURATION" help:"How long a key counts (default 24h); also for dedupe_key in a batch."`
	Delay   text `placeholder:"DURATION" help:"Push it after this time, for example 10m. It gets its id then."`
	At      text `placeholder:"TIME" help:"Push it at this time, for example 2026-01-31T09:00:00Z, or without Z in local time."`
	Batch   bool `help:"Read events from stdin, one JSON object per line with source, type, content and optionally subtype and dedupe_key."`
	Quiet   bool `help:"Print nothing."`
	jsonFlag
}

func pushVerb() *verb {
	return &verb{
		name:    "push",
		summary: "Store an event, or a batch from stdin",
		details: `Exit code 0 means that the event survives a loss of power. A batch is stored
whole or not at all. Printed is the id of each stored event, one per line.
Then the handlers of the subscriptions that match are started.`,
		examples: `thread push --thread ./inbox --source self --type message --content "hello"
thread push --thread ./inbox --source self --type record --subtype toolcall --content "$json"
thread push --thread ./inbox --source ci --type build --content-file log.txt --dedupe-key "build-$ID"
thread push --thread ./copy --batch < ./inbox/events.jsonl`,
		grammar: func() command { return new(pushCmd) },
	}
}

func (c *pushCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	var draft event.Draft
	drafts := batchDrafts(a.stdin, maxLineBytes)
	if !c.Batch {
		if draft, err = c.draft(a.stdin); err != nil {
			return err
		}
		drafts = one(draft)
	}
	if c.Key.set && (c.Batch || c.Key.value == "") {
		return usage("--dedupe-key is empty, or given with --batch", "give a key; in a batch each line has its own dedupe_key")
	}
	if c.Window.set {
		window, err := parseDuration("--dedupe-window", c.Window.value)
		if err != nil {
			return err
		}
		drafts = within(drafts, window)
	}
	if c.Delay.set || c.At.set {
		return c.pushLater(ctx, a, t, draft)
	}
	b, err := t.PushAll(ctx, drafts)
	if err != nil {
		return err
	}
	if b.Count == 0 {
		return nil // an empty batch
	}
	if b.First != 0 {
		a.logPush(c.Batch, draft, b)
	}
	if b.Warning != nil {
		a.logWarning("push: the event is stored, but events.jsonl is behind: %v; the next push completes it", b.Warning)
	}
	// Before printing, so that a reader who does not read delays no handler.
	if b.First != 0 {
		if err := wakeAfterPush(ctx, t, b); err != nil {
			a.logWarning("push: the event is stored, but no handler could be started: %v; run thread dispatch --thread %s", err, a.dir)
		}
	}
	if c.Quiet {
		return nil
	}
	if err := c.print(ctx, a, t, b, draft); err != nil {
		a.stored(b, err)
	}
	return nil
}

// draft returns the event that the flags describe.
func (c *pushCmd) draft(stdin io.Reader) (event.Draft, error) {
	content, err := c.content(stdin)
	if err != nil {
		return event.Draft{}, err
	}
	for _, f := range []struct {
		name string
		text text
	}{{"--source", c.Source}, {"--type", c.Type}, {"--content", content}} {
		if !f.text.set {
			return event.Draft{}, usage("missing flag "+f.name, "add it, or use --batch to read events from stdin")
		}
	}
	d := event.Draft{Source: c.Source.value, Type: c.Type.value, Content: content.value, DedupeKey: c.Key.value}
	if c.Subtype.set {
		d.Subtype = &c.Subtype.value
	}
	return d, d.Validate()
}

// content returns the payload from wherever the flags say.
func (c *pushCmd) content(stdin io.Reader) (text, error) {
	switch {
	case c.File.set && c.Content.set:
		return text{}, usage("--content and --content-file exclude each other", "give one of them")
	case c.File.set:
		f, err := os.Open(c.File.value)
		if err != nil {
			return text{}, usage("cannot read the content: "+err.Error(), "name a file that can be read")
		}
		defer f.Close()
		return readContent(f)
	case c.Content.value == "-":
		return readContent(stdin)
	}
	return c.Content, nil
}

// readContent reads no more than is needed to see that it is too much.
func readContent(r io.Reader) (text, error) {
	b, err := io.ReadAll(io.LimitReader(r, event.MaxContentBytes+1))
	if err != nil {
		return text{}, usage("cannot read the content: "+err.Error(), "give a file or stdin that can be read; nothing was stored")
	}
	return text{value: string(b), set: true}, nil
}

// within sets the dedupe window of drafts.
func within(ds iter.Seq2[event.Draft, error], window time.Duration) iter.Seq2[event.Draft, error] {
	return func(yield func(event.Draft, error) bool) {
		for d, err := range ds {
			d.DedupeWindow = window
			if !yield(d, err) {
				return
			}
		}
	}
}

func one(d event.Draft) iter.Seq2[event.Draft, error] {
	return func(yield func(event.Draft, error) bool) { yield(d, nil) }
}

// print writes what was stored: ids, or with --json the events, which for a
// batch are read back so that a batch of any length needs little memory.
func (c *pushCmd) print(ctx context.Context, a *app, t *engine.Thread, b engine.Batch, d event.Draft) error {
	switch {
	case !c.JSON:
		for id := range b.IDs() {
			a.out.buf = append(strconv.AppendInt(a.out.buf, id, 10), '\n')
			if err := a.out.more(); err != nil {
				return err
			}
		}
	case len(b.Duplicates) > 0:
		return a.printByID(ctx, t, &b)
	case !c.Batch:
		e := event.Event{ID: b.First, CreatedAt: b.CreatedAt,
			Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
		a.out.buf = append(e.AppendJSON(a.out.buf), '\n')
	default:
		events := t.Events(ctx, engine.Query{After: b.First - 1, Limit: b.Last - b.First + 1})
		if _, err := a.printEvents(events); err != nil {
			return err
		}
	}
	return a.out.flush()
}

// printByID prints the events of a batch in which some were there before.
func (a *app) printByID(ctx context.Context, t *engine.Thread, b *engine.Batch) error {
	for id := range b.IDs() {
		for e, err := range t.Events(ctx, engine.Query{After: id - 1, Limit: 1}) {
			if err != nil {
				return err
			}
			if e.ID != id {
				break // the first event with the key is not stored any more
			}
			a.out.buf = append(e.AppendJSON(a.out.buf), '\n')
		}
		if err := a.out.more(); err != nil {
			return err
		}
	}
	return a.out.flush()
}

// stored turns an error that came after the commit into a warning: a caller that
// sees the push fail would push again, and the event is there.
func (a *app) stored(b engine.Batch, err error) {
	if !errors.Is(err, errReaderGone) {
		a.warn("stored as %d to %d, but this could not be printed: %v", b.First, b.Last, err)
	}
}
