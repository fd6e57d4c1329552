package outbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/outbox"
)

// Bounds of what one commit holds.
const (
	mostLines = 10_000
	mostBytes = 64 << 20
)

type pushCmd struct {
	cli.ThreadFlags
	cli.JSONFlag
}

var pushVerb = &cli.Verb{
	Name:    "outbox push",
	Summary: "Store events and their messages in one commit, from stdin",
	Details: `Each line is one of thread push --batch, and may have a member "outbox" with a
message: the event and the message are stored in the same transaction, with all
other lines, or nothing is. Up to 10,000 lines and 64 MiB. A line prints the id of
its event and the event_id of its message. An event whose dedupe_key is known stores
neither; a message that is a duplicate leaves its event.`,
	Exits: "0 stored, and survives a loss of power\n1 not stored\n2 a line is wrong: nothing is stored",
	Examples: `thread outbox push --thread ./inbox < comments.ndjson
echo '{"source":"app","type":"comment","content":{"id":8801},"outbox":{"event_type":"comment.replied","thread_id":101,"comment_id":8801,"target_user_id":5}}' | thread outbox push --thread ./inbox`,
	Grammar: func() cli.Command { return new(pushCmd) },
}

// entry is a line: an event, and perhaps a message.
type entry struct {
	line    int // of stdin, from 1
	draft   event.Draft
	message *outbox.Message

	id        int64
	duplicate bool
	inserted  outbox.Inserted
}

func (c *pushCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenEvents(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	entries, err := readEntries(a.Stdin)
	if err != nil || len(entries) == 0 {
		return err
	}
	err = t.Update(ctx, func(tx *engine.Tx) error {
		for i := range entries {
			if err := entries[i].store(tx); err != nil {
				return &cli.LineError{Line: entries[i].line, Err: err}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.NotStarted("outbox push: the events are stored", cli.Wake(ctx, t, entries[len(entries)-1].draft.Source))
	for i := range entries {
		if err := c.print(a, &entries[i]); err != nil {
			warnUnprinted(a, err)
			return nil
		}
	}
	warnUnprinted(a, nil)
	return nil
}

func (e *entry) store(tx *engine.Tx) error {
	before := tx.Head()
	stored, err := tx.Push(e.draft)
	if err != nil {
		return err
	}
	e.id, e.duplicate = stored.ID, stored.ID <= before
	if e.message == nil {
		return nil
	}
	if e.duplicate { // the message was stored with the first one
		rules, err := outbox.ReadRules(tx)
		if err != nil {
			return err
		}
		return rules.Check(e.message)
	}
	e.inserted, err = outbox.Insert(tx, *e.message)
	return err
}

func (c *pushCmd) print(a *cli.App, e *entry) error {
	if c.JSON {
		return printJSON(a, struct {
			ID        int64            `json:"id"`
			Duplicate bool             `json:"duplicate"`
			Outbox    *insertedMessage `json:"outbox"`
		}{e.id, e.duplicate, describe(e.inserted)})
	}
	line := strconv.FormatInt(e.id, 10)
	if e.duplicate {
		line += "\tduplicate"
	}
	if e.inserted.EventID != "" {
		line += "\t" + e.inserted.EventID
	}
	if e.inserted.Duplicate {
		line += "\tduplicate"
	}
	return a.Out.Text(line + "\n")
}

// readEntries reads all lines of stdin. Blank ones are skipped.
func readEntries(stdin io.Reader) (entries []entry, err error) {
	in := bufio.NewReader(io.LimitReader(stdin, mostBytes+1))
	size := 0
	for n := 1; ; n++ {
		line, rerr := in.ReadBytes('\n')
		if size += len(line); size > mostBytes {
			return nil, &cli.LineError{Line: n, Err: fmt.Errorf("%w: the lines are longer than %d bytes", event.ErrInvalid, mostBytes)}
		}
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\uFEFF"))
		}
		if len(bytes.TrimSpace(line)) > 0 {
			e, err := parseEntry(line)
			if err == nil && len(entries) == mostLines {
				err = fmt.Errorf("%w: there are more than %d lines", event.ErrInvalid, mostLines)
			}
			if err != nil {
				return nil, &cli.LineError{Line: n, Err: err}
			}
			e.line = n
			entries = append(entries, e)
		}
		switch {
		case errors.Is(rerr, io.EOF):
			return entries, nil
		case rerr != nil:
			return nil, cli.LogicError("cannot read stdin: "+rerr.Error(), "give the lines on stdin; nothing was stored")
		}
	}
}

// parseEntry takes the member outbox from a line; the rest is an event's.
func parseEntry(line []byte) (e entry, err error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(line, &members) != nil || len(members["outbox"]) == 0 {
		e.draft, err = event.ParseDraft(line) // it names the error
		return e, err
	}
	m, err := outbox.ReadMessage(members["outbox"])
	if err != nil {
		return e, err
	}
	m.Trace(os.Getenv(envTrace), os.Getenv(envRequest))
	e.message = &m
	delete(members, "outbox")
	rest, err := marshal(members)
	if err != nil {
		return e, err
	}
	e.draft, err = event.ParseDraft(rest)
	return e, err
}
