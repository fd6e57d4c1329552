package core

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"

	"thread/event"
	"thread/internal/cli"
)

// lines are the drafts of push --lines: the content of each is a line of stdin without
// its \n or \r\n, an empty one too. Errors are as of BatchDrafts.
func (c *pushCmd) lines(stdin io.Reader, replaced *int) (iter.Seq2[event.Draft, error], error) {
	switch {
	case c.Batch || c.Content.Set || c.File.Set:
		return nil, cli.UsageError("--lines goes without --batch, --content and --content-file", "give one of them: the content of each event is a line of stdin")
	case c.Delay.Set || c.At.Set:
		return nil, cli.UsageError("--lines goes without --delay and --at", "leave them out, or push the text as one event with --content-file -")
	}
	like := event.Draft{Source: c.Source.Or(userAtHost()), Type: c.Type.Or("line")}
	if c.Subtype.Set {
		like.Subtype = &c.Subtype.Value
	}
	ahead := 0
	if replaced == nil {
		replaced = &ahead
	} else {
		*replaced += like.ToValidUTF8()
	}
	strict := replaced == &ahead
	if err := like.Validate(); err != nil {
		return nil, err
	}
	parse := func(b lineBlock) parsed { return b.contents(like, strict) }
	return func(yield func(event.Draft, error) bool) {
		for p, err := range parallel(lineBlocks(stdin, event.MaxContentBytes+2), parse) {
			*replaced += p.replaced
			for _, d := range p.drafts {
				if !yield(d, nil) {
					return
				}
			}
			if err == nil {
				err = p.err
			}
			if err != nil {
				yield(event.Draft{}, err)
				return
			}
		}
	}, nil
}

// contents makes a draft like that one of each line.
func (b lineBlock) contents(like event.Draft, strict bool) (p parsed) {
	n := b.first
	for line := range bytes.Lines(b.text) {
		d := like
		d.Content = string(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")))
		if len(d.Content) > event.MaxContentBytes {
			p.err = &cli.LineError{Line: n, Err: fmt.Errorf("longer than %d bytes", event.MaxContentBytes)}
			return p
		}
		if !strict {
			p.replaced += d.ToValidUTF8()
		}
		if err := d.Validate(); err != nil {
			p.err = &cli.LineError{Line: n, Err: err}
			return p
		}
		p.drafts = append(p.drafts, d)
		n++
	}
	return p
}

// userAtHost is who runs the program. The name of the user is that of the environment,
// which cron sets, too: looking it up would link a good deal.
func userAtHost() string {
	user := cmp.Or(os.Getenv("LOGNAME"), os.Getenv("USER"), os.Getenv("USERNAME"))
	if user == "" {
		user = strconv.Itoa(os.Getuid())
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return user + "@" + host
}
