package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/terminal"
)

type pushCmd struct {
	cli.ThreadFlags
	Source  cli.Text `placeholder:"SOURCE" help:"Who sends the event. Required without --batch."`
	Type    cli.Text `placeholder:"TYPE" help:"What the event is. Required without --batch."`
	Subtype cli.Text `placeholder:"SUBTYPE" help:"What the event is more precisely."`
	Content cli.Text `placeholder:"TEXT" help:"The payload, up to 64 MiB; \"\" is allowed. Required without --batch and --content-file."`
	File    cli.Text `name:"content-file" placeholder:"FILE" help:"Read the payload from this file, - for stdin, instead of --content."`
	ReplyTo cli.Text `name:"reply-to" placeholder:"EVENT" help:"The event that this one answers; the content becomes a JSON object with reply_to."`
	Key     cli.Text `name:"dedupe-key" placeholder:"TEXT" help:"Store nothing if an event was pushed with this key before, and print the first one's id."`
	Window  cli.Text `name:"dedupe-window" placeholder:"DURATION" help:"How long a key counts (default 24h); also for dedupe_key in a batch."`
	Delay   cli.Text `placeholder:"DURATION" help:"Push it after this time, for example 10m. It gets its id then."`
	At      cli.Text `placeholder:"TIME" help:"Push it at this time: 18:00, tomorrow 09:00, 2026-01-31T09:00:00Z. Without a zone it is local time."`
	Batch   bool     `help:"Read events from stdin, one JSON object per line with source, type, content and optionally subtype and dedupe_key."`
	Lines   bool     `help:"Make an event of each line of stdin: its content. --source is then by default user@host, --type line."`
	Flush   cli.Text `placeholder:"DURATION" help:"With --lines: store the lines that came within this time together, for example 1s, while input continues."`
	Max     cli.Text `placeholder:"N" help:"With --lines: store at most N lines together, while input continues."`
	Strict  bool     `help:"Refuse text that is not valid UTF-8 instead of storing U+FFFD."`
	Quiet   bool     `help:"Print nothing."`
	cli.JSONFlag
}

var pushVerb = &cli.Verb{
	Name:    "push",
	Summary: "Store an event, or a batch from stdin",
	Details: `Exit code 0 means that the event survives a loss of power. A batch is stored whole or
not at all. Prints the id of each stored event, one per line, and starts the handlers of
matching subscriptions. Bytes that are not valid UTF-8, and half of a surrogate pair in
a batch, are stored as U+FFFD, and a warning counts them. Encode binary content, for
example with base64.

With --flush or --max the lines of --lines are stored in groups, each whole, and a bad
line ends the push after the lines before it. So does Ctrl-C or SIGTERM: the lines that
were read are stored.`,
	Exits: "0 stored, and survives a loss of power; with --dedupe-key also: stored before\n1 not stored, or it may be: the message says which\n2 a line of the batch, a text that --strict refuses: nothing is stored",
	Examples: `thread push --thread ./inbox --source self --type message --content "hello"
thread push --thread ./inbox --source self --type record --subtype toolcall --content "$json"
thread push --thread ./inbox --source ci --type build --content-file log.txt --dedupe-key "build-$ID"
du -s /srv/* | thread push --thread ./inbox --lines
tail -f /var/log/app.log | thread push --thread ./inbox --lines --flush 1s --max 1000 --quiet
thread push --thread ./copy --batch < ./inbox/events.jsonl`,
	Grammar: func() cli.Command { return new(pushCmd) },
}

func (c *pushCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenEvents(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	var draft event.Draft
	replaced := new(int)
	if c.Strict {
		replaced = nil
	}
	var drafts iter.Seq2[event.Draft, error]
	switch {
	case c.Lines:
		if drafts, err = c.lines(a.Stdin, replaced); err != nil {
			return err
		}
		c.Batch = true // except for the form of what is read
	case c.Batch:
		drafts = BatchDrafts(a.Stdin, maxLineBytes, replaced)
	default:
		if draft, err = c.draft(a.Stdin, replaced); err != nil {
			return err
		}
		drafts = one(draft)
	}
	if !c.Lines && (c.Flush.Set || c.Max.Set) {
		return cli.UsageError("--flush and --max go with --lines", "add --lines, or leave them out: a batch is stored whole")
	}
	if c.ReplyTo.Set && c.Batch {
		return cli.UsageError("--reply-to goes without --batch", "put \"reply_to\" into the content of each event")
	}
	if c.Key.Set && (c.Batch || c.Key.Value == "") {
		return cli.UsageError("--dedupe-key is empty, or given with --batch", "give a key; in a batch each line has its own dedupe_key")
	}
	if c.Window.Set {
		window, err := cli.ParseDuration("--dedupe-window", c.Window.Value)
		if err != nil {
			return err
		}
		drafts = within(drafts, window)
	}
	if c.Delay.Set || c.At.Set {
		err := c.pushLater(ctx, a, t, draft)
		if err != nil {
			return err
		}
		warnReplaced(a, replaced)
		return nil
	}
	if c.Flush.Set || c.Max.Set {
		return c.stream(ctx, a, t, drafts, replaced)
	}
	end := func() {}
	if c.Batch {
		drafts, end = batchProgress(a, drafts)
	}
	b, err := t.PushAll(ctx, drafts)
	end()
	if err != nil {
		return err
	}
	if b.First != 0 {
		warnReplaced(a, replaced)
	}
	return c.stored(ctx, a, t, b, draft)
}

// stored logs, dispatches and prints what was pushed.
func (c *pushCmd) stored(ctx context.Context, a *cli.App, t *engine.Thread, b engine.Batch, draft event.Draft) error {
	if b.Count == 0 {
		return nil // an empty batch
	}
	if b.First != 0 {
		a.LogPush(c.Batch, draft, b)
	}
	if b.Warning != nil {
		a.LogWarning("push: the event is stored, but events.jsonl is behind: %v; the next push completes it", b.Warning)
	}
	// Before printing, so that a reader who does not read delays no handler.
	if b.First != 0 {
		a.NotStarted("push: the event is stored", cli.WakeAfterPush(ctx, t, b))
		if b.Subscribed {
			a.WarnUnpopped(ctx, t)
		}
		if b.Subscribed && (dispatch.StartsNobody() || t.URL() != "") {
			defer keepLimits(ctx, t)
		}
	}
	if c.Quiet {
		return nil
	}
	if err := c.print(ctx, a, t, b, draft); err != nil {
		warnStored(a, b, err)
	}
	return nil
}

// warnReplaced says how much of the text that was stored is not what was given.
func warnReplaced(a *cli.App, n *int) {
	if n != nil && *n > 0 {
		a.Warn("invalid text was stored as U+FFFD (count: %d); encode binary content, for example with base64, or refuse it with --strict", *n)
	}
}

// draft returns the event that the flags describe. Text that is not valid is
// replaced and counted, or refused when replaced is nil.
func (c *pushCmd) draft(stdin io.Reader, replaced *int) (event.Draft, error) {
	content, err := c.content(stdin)
	if err != nil {
		return event.Draft{}, err
	}
	for _, f := range []struct {
		name string
		text cli.Text
	}{{"--source", c.Source}, {"--type", c.Type}, {"--content", content}} {
		if !f.text.Set {
			return event.Draft{}, cli.UsageError("missing flag "+f.name, "add it, or use --batch or --lines to read events from stdin")
		}
	}
	d := event.Draft{Source: c.Source.Value, Type: c.Type.Value, Content: content.Value, DedupeKey: c.Key.Value}
	if c.Subtype.Set {
		d.Subtype = &c.Subtype.Value
	}
	if replaced != nil {
		*replaced = d.ToValidUTF8()
	}
	if c.ReplyTo.Set {
		if err := c.reply(&d); err != nil {
			return d, err
		}
	}
	return d, d.Validate()
}

// content returns the payload from wherever the flags say. The value of --content
// is never anything but itself: clients pass on what people type.
func (c *pushCmd) content(stdin io.Reader) (cli.Text, error) {
	switch {
	case c.File.Set && c.Content.Set:
		return cli.Text{}, cli.UsageError("--content and --content-file exclude each other", "give one of them")
	case c.File.Value == "-":
		return readContent(stdin)
	case c.File.Set:
		f, err := os.Open(c.File.Value)
		if err != nil {
			return cli.Text{}, unreadable(err)
		}
		defer f.Close()
		return readContent(f)
	}
	return c.Content, nil
}

// readContent reads no more than is needed to see that it is too much. A large
// content is in memory once: what is made room for and not written to costs
// nothing.
func readContent(r io.Reader) (cli.Text, error) {
	var b strings.Builder
	part := make([]byte, 32<<10)
	for {
		n, err := r.Read(part)
		if b.Len() < smallContent && b.Len()+n >= smallContent {
			b.Grow(event.MaxContentBytes + len(part))
		}
		b.Write(part[:n])
		switch {
		case b.Len() > event.MaxContentBytes:
			return cli.Text{}, cli.UsageError(fmt.Sprintf("the content is longer than %d bytes", event.MaxContentBytes), "push it in parts, or push where it is")
		case err == io.EOF:
			return cli.Text{Value: b.String(), Set: true}, nil
		case err != nil:
			return cli.Text{}, unreadable(err)
		}
	}
}

const smallContent = 256 << 10

func unreadable(err error) error {
	return cli.UsageError("cannot read the content: "+err.Error(), "name a file that can be read, or - for stdin; nothing was stored")
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
func (c *pushCmd) print(ctx context.Context, a *cli.App, t *engine.Thread, b engine.Batch, d event.Draft) error {
	switch {
	case !c.JSON:
		for id := range b.IDs() {
			a.Out.Buf = append(strconv.AppendInt(a.Out.Buf, id, 10), '\n')
			if err := a.Out.More(); err != nil {
				return err
			}
		}
	case len(b.Duplicates) > 0:
		return printByID(ctx, a, t, &b)
	case !c.Batch:
		e := event.Event{ID: b.First, CreatedAt: b.CreatedAt,
			Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
		if err := a.Out.Event(&e); err != nil {
			return err
		}
	default:
		events := t.Events(ctx, engine.Query{After: b.First - 1, Limit: b.Last - b.First + 1})
		if _, err := printEvents(a, events, parseFlag{}); err != nil {
			return err
		}
	}
	return a.Out.Flush()
}

// printByID prints the events of a batch in which some were there before.
func printByID(ctx context.Context, a *cli.App, t *engine.Thread, b *engine.Batch) error {
	for id := range b.IDs() {
		for e, err := range t.Events(ctx, engine.Query{After: id - 1, Limit: 1}) {
			if err != nil {
				return err
			}
			if e.ID != id {
				break // the first event with the key is not stored any more
			}
			if err := a.Out.Event(&e); err != nil {
				return err
			}
		}
	}
	return a.Out.Flush()
}

// warnStored turns an error that came after the commit into a warning: a caller that
// sees the push fail would push again, and the event is there.
func warnStored(a *cli.App, b engine.Batch, err error) {
	if !errors.Is(err, terminal.ErrReaderGone) {
		a.Warn("stored as %d to %d, but this could not be printed: %v", b.First, b.Last, err)
	}
}
