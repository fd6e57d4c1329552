package outbox

import (
	"bufio"
	"bytes"
	"context"
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

const mostBytes = 64 << 20 // of one commit

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

// entry is a line.
type entry struct {
	outbox.Entry
	line   int // of stdin, from 1
	stored outbox.Stored
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
			e := &entries[i]
			var err error
			if e.stored, err = e.Store(tx); err != nil {
				return &cli.LineError{Line: e.line, Err: err}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.NotStarted("outbox push: the events are stored", cli.Wake(ctx, t, entries[len(entries)-1].Draft.Source))
	for i := range entries {
		if err := c.print(a, &entries[i].stored); err != nil {
			warnUnprinted(a, err)
			return nil
		}
	}
	warnUnprinted(a, nil)
	return nil
}

func (c *pushCmd) print(a *cli.App, s *outbox.Stored) error {
	if c.JSON {
		return printJSON(a, s)
	}
	line := strconv.FormatInt(s.ID, 10)
	if s.Duplicate {
		line += "\tduplicate"
	}
	if s.Outbox != nil {
		line += "\t" + s.Outbox.EventID
		if s.Outbox.Duplicate {
			line += "\tduplicate"
		}
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
			e, err := outbox.ParseEntry(line)
			if err == nil && len(entries) == outbox.MaxEntries {
				err = fmt.Errorf("%w: there are more than %d lines", event.ErrInvalid, outbox.MaxEntries)
			}
			if err != nil {
				return nil, &cli.LineError{Line: n, Err: err}
			}
			if e.Message != nil {
				e.Message.Trace(os.Getenv(envTrace), os.Getenv(envRequest))
			}
			entries = append(entries, entry{Entry: e, line: n})
		}
		switch {
		case errors.Is(rerr, io.EOF):
			return entries, nil
		case rerr != nil:
			return nil, cli.LogicError("cannot read stdin: "+rerr.Error(), "give the lines on stdin; nothing was stored")
		}
	}
}
