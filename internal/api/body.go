package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"thread/event"
	"thread/internal/similar"
)

const (
	maxBodyBytes  = 64 << 20 // of a push
	maxLineBytes  = 16 << 20 // of one event
	maxAskedBytes = 64 << 10 // of any other request
	smallBytes    = 1 << 20  // of a line that is in memory without a place among the large ones
	largeAtOnce   = 4
	partBytes     = 64 << 10 // of a body, that come in their time or the client is too slow
)

// timedBody is the body of a request, of at most that many bytes, each part of which has
// its time to come.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	time    time.Duration
	left    int // until it begins again
}

func (b *timedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		b.left = partBytes
		_ = b.control.SetReadDeadline(time.Now().Add(b.time)) // in a test there is none
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{}) // or who waits would be taken for gone
	}
	return n, err
}

// unread is what is wrong when a body cannot be read to its end.
func unread(err error) error {
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", tooLong.Limit)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{http.StatusRequestTimeout, "the body comes too slowly"}
	}
	return badRequest("the body cannot be read")
}

// typeOf returns the type of a body, without its parameters. A page of another site
// cannot send one of ours without asking first, and nothing answers that.
func typeOf(q *http.Request) string {
	typ, _, err := mime.ParseMediaType(q.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return typ
}

// object reads a body of JSON.
func object(q *http.Request) ([]byte, error) {
	if q.ContentLength == 0 {
		return nil, nil
	}
	if typeOf(q) != "application/json" {
		return nil, &Error{http.StatusUnsupportedMediaType, "send application/json"}
	}
	text, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, unread(err)
	}
	return text, nil
}

// decode reads a request of a few members into data. Without a body it has none.
func decode(q *http.Request, data any) error {
	text, err := object(q)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(data); err != nil {
		if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
			return badRequest("%s", similar.Unknown("member", strings.Trim(name, `"`), membersOf(data)))
		}
		return badRequest("the body is not what is asked for: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return badRequest("the body has more than one value")
	}
	return nil
}

// membersOf returns the members that data, a pointer to a struct, takes.
func membersOf(data any) (names []string) {
	typ := reflect.TypeOf(data).Elem()
	for i := range typ.NumField() {
		names = append(names, typ.Field(i).Tag.Get("json"))
	}
	return names
}

// batch reads the events of a push.
type batch struct {
	from     io.Reader
	large    chan struct{}
	single   bool                                          // the body is one event, over any number of lines
	replaced int                                           // how much text was not valid
	parse    func(n int, text []byte) (event.Draft, error) // of line n; nil for ParseDraftLossy
	key      string                                        // the dedupe key of what has none, with the number of the line in a batch
}

// drafts yields the events in order. The first error ends it.
func (b *batch) drafts() iter.Seq2[event.Draft, error] {
	return func(yield func(event.Draft, error) bool) {
		held := false
		defer func() {
			if held {
				<-b.large
			}
		}()
		var text []byte
		part := make([]byte, 32<<10)
		for n, end := 1, false; !end; {
			size, err := b.from.Read(part)
			if err != nil && err != io.EOF {
				yield(event.Draft{}, unread(err))
				return
			}
			end = err == io.EOF
			searched := len(text)
			text = append(text, part[:size]...)
			if !b.single {
				for {
					i := bytes.IndexByte(text[searched:], '\n')
					if i < 0 {
						break
					}
					if !b.line(text[:searched+i], n, yield) {
						return
					}
					text, searched, n = text[searched+i+1:], 0, n+1
				}
			}
			if len(text) > maxLineBytes {
				yield(event.Draft{}, &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("an event is longer than %d bytes", maxLineBytes)})
				return
			}
			if len(text) > smallBytes && !held {
				select {
				case b.large <- struct{}{}:
					held = true
				default:
					yield(event.Draft{}, &Error{http.StatusServiceUnavailable, "too many large events at once"})
					return
				}
			}
			if end {
				b.line(text, n, yield)
			}
		}
	}
}

// draft reads an event in which text that is not valid is replaced.
func (b *batch) draft(_ int, text []byte) (event.Draft, error) {
	d, replaced, err := event.ParseDraftLossy(text)
	b.replaced += replaced
	return d, err
}

// line yields the event of a line, if it has one.
func (b *batch) line(text []byte, n int, yield func(event.Draft, error) bool) bool {
	if n == 1 {
		text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return true
	}
	parse := b.parse
	if parse == nil {
		parse = b.draft
	}
	d, err := parse(n, text)
	if err != nil && b.single {
		err = badRequest("%v", err)
	} else if err != nil {
		err = badRequest("line %d: %v", n, err)
	}
	if b.key != "" && d.DedupeKey == "" {
		d.DedupeKey = b.key
		if !b.single {
			d.DedupeKey += "#" + strconv.Itoa(n)
		}
	}
	return yield(d, err) && err == nil
}
