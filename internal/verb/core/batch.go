package core

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
)

// maxLineBytes bounds one line of a batch. The longest line that this program
// writes into events.jsonl stays below: JSON may need six bytes for one
// (`\u0000`), and there is room for the keys and for spaces.
const maxLineBytes = 6*(event.MaxContentBytes+3*event.MaxNameBytes) + 1<<20

// blockBytes is how much is read at a time.
const blockBytes = 256 << 10

// BatchDrafts reads NDJSON: one object per line, lines ending in \n or \r\n, the
// last one possibly in nothing, a byte order mark before the first, blank lines
// ignored (T-31, T-33). The first error ends the sequence; it is a
// *LineError, or a failure when r cannot be read. A line longer than maxLine
// bytes, its end included, is refused. Text that is not valid is replaced and
// counted, or refused when replaced is nil; the count stands at the end of the
// sequence. Lines are read and parsed on separate goroutines, some blocks ahead.
func BatchDrafts(r io.Reader, maxLine int, replaced *int) iter.Seq2[event.Draft, error] {
	return func(yield func(event.Draft, error) bool) {
		parse := func(b lineBlock) parsed { return b.parse(maxLine, replaced == nil) }
		for p, err := range parallel(lineBlocks(r, maxLine), parse) {
			if replaced != nil {
				*replaced += p.replaced
			}
			for _, d := range p.drafts {
				if !yield(d, nil) {
					return
				}
			}
			if err = cmp.Or(err, p.err); err != nil {
				yield(event.Draft{}, err)
				return
			}
		}
	}
}

// lineBlock is a number of whole lines, the last of all possibly without its end.
type lineBlock struct {
	first int // number of the first line, from 1
	text  []byte
}

// lineBlocks cuts what each read of r returns into whole lines, so that a line is
// seen as soon as it is there.
func lineBlocks(r io.Reader, maxLine int) iter.Seq2[lineBlock, error] {
	return func(yield func(lineBlock, error) bool) {
		next := lineBlock{first: 1, text: make([]byte, 0, blockBytes)}
		for {
			begun := len(next.text)
			n, err := r.Read(next.text[begun:cap(next.text)])
			next.text = next.text[:begun+n]
			b, end := next, begun+bytes.LastIndexByte(next.text[begun:], '\n')+1
			switch {
			case errors.Is(err, io.EOF):
				if len(b.text) > 0 {
					yield(b, nil)
				}
				return
			case err != nil:
				b.text = b.text[:end]
				if end == begun || yield(b, nil) {
					yield(lineBlock{}, cli.LogicError(fmt.Sprintf("cannot read stdin: %v", err), "give the batch on stdin; nothing was stored"))
				}
				return
			case end == begun && begun+n > maxLine:
				b.text = b.text[:maxLine+1] // parse refuses it
				yield(b, nil)
				return
			case end == begun:
				next.text = slices.Grow(next.text, blockBytes/4)
				continue
			}
			next.first += bytes.Count(b.text[:end], []byte("\n"))
			if next.text = next.text[end:]; cap(next.text)-len(next.text) < blockBytes/4 {
				next.text = append(make([]byte, 0, max(blockBytes, 2*len(next.text))), next.text...)
			}
			b.text = b.text[:end]
			if !yield(b, nil) {
				return
			}
		}
	}
}

// parsed is what a block of lines says, up to the first line that is wrong.
type parsed struct {
	drafts   []event.Draft
	replaced int
	err      error
}

func (b lineBlock) parse(maxLine int, strict bool) (p parsed) {
	n := b.first
	for line := range bytes.Lines(b.text) {
		if len(line) > maxLine {
			p.err = &cli.LineError{Line: n, Err: fmt.Errorf("longer than %d bytes", maxLine)}
			return p
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\uFEFF"))
		}
		if len(bytes.TrimSpace(line)) > 0 {
			d, replaced, err := parseDraft(line, strict)
			if err != nil {
				p.err = &cli.LineError{Line: n, Err: err}
				return p
			}
			p.drafts = append(p.drafts, d)
			p.replaced += replaced
		}
		n++
	}
	return p
}

func parseDraft(line []byte, strict bool) (d event.Draft, replaced int, err error) {
	if strict {
		d, err = event.ParseDraft(line)
		return d, 0, err
	}
	return event.ParseDraftLossy(line)
}

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
			if err = cmp.Or(err, p.err); err != nil {
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

// userAtHost is who runs the program. The name of the user is the user of the environment,
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

// maxParallel bounds how many parts are worked on at once, and so the memory that
// they hold.
const maxParallel = 4

// parallel returns f of each part of the sequence, in order. The parts are taken from
// it on a goroutine, and f runs on several, a few parts ahead of the reader; a
// part must not be used by the sequence again. The first error ends both
// sequences. When the reader stops early, the goroutines end at the next part;
// one that waits for a part continues waiting.
func parallel[P, R any](parts iter.Seq2[P, error], f func(P) R) iter.Seq2[R, error] {
	type result struct {
		value chan R // gets one
		err   error
	}
	return func(yield func(R, error) bool) {
		results := make(chan result, min(runtime.GOMAXPROCS(0), maxParallel)-1)
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			defer close(results)
			for p, err := range parts {
				r := result{err: err}
				if err == nil {
					r.value = make(chan R, 1)
					go func() { r.value <- f(p) }()
				}
				select {
				case results <- r:
				case <-stop:
					return
				}
				if err != nil {
					return
				}
			}
		}()
		for r := range results {
			if r.err != nil {
				var none R
				yield(none, r.err)
				return
			}
			if !yield(<-r.value, nil) {
				return
			}
		}
	}
}

// arrived is the next draft of stdin, or the error that ends it.
type arrived struct {
	draft event.Draft
	err   error
}

// arrivals stores drafts in groups while more of them come. A group ends flush after its
// first draft, at the latest with max drafts.
type arrivals struct {
	next  <-chan arrived
	flush time.Duration // 0: without a bound
	max   int64
	ended bool  // There is no draft after this group.
	err   error // the error that has ended the drafts
}

// group returns the drafts of the next transaction. The end of stopping ends it, and all
// groups.
func (s *arrivals) group(stopping context.Context) iter.Seq2[event.Draft, error] {
	return func(yield func(event.Draft, error) bool) {
		var due <-chan time.Time
		for n := int64(0); n < s.max; n++ {
			select {
			case <-stopping.Done():
				s.ended = true
				return
			case <-due:
				return
			case next, ok := <-s.next:
				if !ok || next.err != nil {
					s.ended, s.err = true, next.err
					return
				}
				if n == 0 && s.flush > 0 {
					due = time.After(s.flush)
				}
				if !yield(next.draft, nil) {
					return
				}
			}
		}
	}
}

// arrivals reads the flags of a push in groups, and drafts on another goroutine.
func (c *pushCmd) arrivals(drafts iter.Seq2[event.Draft, error]) (s *arrivals, err error) {
	next := make(chan arrived)
	s = &arrivals{next: next, max: math.MaxInt64}
	if c.Flush.Set {
		if s.flush, err = cli.ParseDuration("--flush", c.Flush.Value); err != nil {
			return nil, err
		}
	}
	if c.Max.Set {
		n, ok := cli.ParseNumber(c.Max.Value)
		if !ok || n == 0 {
			return nil, cli.UsageError(fmt.Sprintf("--max %q is not a number from 1 to 9223372036854775807", c.Max.Value), "give how many lines to store together")
		}
		s.max = n
	}
	go func() {
		defer close(next)
		for d, err := range drafts {
			next <- arrived{d, err}
		}
	}()
	return s, nil
}

// stream pushes drafts in groups until they end, or a signal ends the program: what was
// read by then is stored.
func (c *pushCmd) stream(ctx context.Context, a *cli.App, t *engine.Thread, drafts iter.Seq2[event.Draft, error], replaced *int) error {
	s, err := c.arrivals(drafts)
	if err != nil {
		return err
	}
	stopping, stop := cli.Interruptible(ctx)
	defer stop()
	for !s.ended {
		b, err := t.PushAll(ctx, s.group(stopping))
		if err != nil {
			return err
		}
		if err := c.stored(ctx, a, t, b, event.Draft{}); err != nil {
			return err
		}
	}
	if stopping.Err() != nil {
		return cli.Exited(130) // the goroutine still counts what is replaced
	}
	warnReplaced(a, replaced)
	if s.err == nil {
		return nil
	}
	const before = "; the lines before are stored"
	if at := new(cli.LineError); errors.As(s.err, &at) {
		return cli.UsageError(at.Error(), "correct it, and push that line and those after it"+before)
	}
	what := s.err.Error()
	if f := new(cli.Failure); errors.As(s.err, &f) {
		what = f.What
	}
	return cli.LogicError(what, "push the lines that were not read"+before)
}
