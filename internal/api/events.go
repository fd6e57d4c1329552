package api

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"thread/engine"
	"thread/event"
)

const (
	searchTime = 200 * time.Millisecond // for the events of one page
	firstPiece = 1024                   // ids that are searched at first; then twice as many each time
	pageEvents = 100
	maxPage    = 1000
	pageBytes  = 1 << 20 // of content on one page, except for its last event
)

// page is the events of an answer.
type page struct {
	where  string
	limit  int64
	events []event.Event
	last   int64 // the ids up to this one were searched
	all    bool  // there are none after it
}

func (p *page) read(q *http.Request, t *engine.Thread) error {
	var head int64
	err := t.View(q.Context(), func(tx *engine.Tx) error {
		head = tx.Head()
		return nil
	})
	if err != nil {
		return err
	}
	end := time.Now().Add(searchTime)
	bytes := 0
	for piece := int64(firstPiece); p.last < head; piece *= 2 {
		upto := head
		if head-p.last > piece {
			upto = p.last + piece
		}
		query := engine.Query{After: p.last, Filter: fmt.Sprintf("id <= %d", upto), Limit: p.limit - int64(len(p.events))}
		if p.where != "" {
			// It is valid by itself, so that the parentheses hold it together, behind a comment, too.
			query.Filter += " AND (" + p.where + "\n)"
		}
		for e, err := range t.Events(q.Context(), query) {
			if err != nil {
				return err
			}
			p.events, p.last = append(p.events, e), e.ID
			if bytes += len(e.Content); int64(len(p.events)) == p.limit || bytes >= pageBytes {
				p.all = p.last >= head
				return nil
			}
		}
		if p.last = upto; time.Now().After(end) {
			break
		}
	}
	p.all = p.last >= head
	return nil
}

func (p *page) write(rw http.ResponseWriter) {
	rw.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(rw, 32<<10)
	_, _ = out.WriteString(`{"events":[`) // who asked may be gone
	if writeEvents(out, p.events) != nil {
		return
	}
	_, _ = fmt.Fprintf(out, `],"last_id":%d,"complete":%t}`+"\n", p.last, p.all)
	_ = out.Flush()
}

// writeEvents writes them with commas between, and returns an error when no process takes them.
func writeEvents(out *bufio.Writer, events []event.Event) (err error) {
	var buf []byte
	for i := range events {
		if i > 0 {
			_ = out.WriteByte(',') // the next one tells
		}
		if buf, err = events[i].WriteJSON(out, buf[:0]); err != nil {
			return err
		}
	}
	return nil
}

func number(q *http.Request, name string, otherwise int64) (int64, error) {
	text := q.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, badRequest("%s is not a number", name)
	}
	return n, nil
}
