package core

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

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
// sequence. Lines are read and parsed on goroutines of their own, some blocks ahead.
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
			if err == nil {
				err = p.err
			}
			if err != nil {
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
