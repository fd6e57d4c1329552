package api

import (
	"bufio"
	"net/http"
	"strconv"
	"time"

	"thread/event"
	"thread/internal/duration"
)

// push stores one event, or a batch as lines: all of it or nothing. It answers with the id
// of each, also of those that were stored before with the same dedupe key.
func (a *API) push(rw http.ResponseWriter, q *http.Request) error {
	t, err := a.host.Thread(q.PathValue("name"))
	if err != nil {
		return err
	}
	window, err := wait("dedupe_window", q.URL.Query().Get("dedupe_window"), 0)
	if err != nil {
		return err
	}
	b := batch{large: a.large, key: q.Header.Get("Idempotency-Key")}
	switch typeOf(q) {
	case "application/json":
		b.single = true
		b.from = a.body(rw, q, maxLineBytes)
	case "application/x-ndjson":
		b.from = a.body(rw, q, maxBodyBytes)
	default:
		return &Error{http.StatusUnsupportedMediaType, "send one event as application/json, or one on each line as application/x-ndjson"}
	}
	stored, err := t.Engine().PushAll(q.Context(), func(yield func(event.Draft, error) bool) {
		for d, err := range b.drafts() {
			d.DedupeWindow = window
			if !yield(d, err) {
				return
			}
		}
	})
	answering(rw)
	if err != nil {
		return err
	}
	if b.single && stored.Count == 0 {
		return badRequest("the body is empty")
	}
	if stored.Warning != nil {
		a.host.Behind(t, stored.Warning)
	}
	if stored.First != 0 {
		t.Pushed()
	}
	rw.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(rw, 32<<10)
	text := []byte(`{"ids":[`)
	n := 0
	for id := range stored.IDs() {
		if n++; n > 1 {
			text = append(text, ',')
		}
		_, _ = out.Write(strconv.AppendInt(text, id, 10)) // it is stored, whether they hear of it or not
		text = text[:0]
	}
	text = append(text, `],"duplicate_count":`...)
	text = strconv.AppendInt(text, int64(len(stored.Duplicates)), 10)
	text = append(text, `,"replaced_count":`...)
	_, _ = out.Write(append(strconv.AppendInt(text, int64(b.replaced), 10), "}\n"...))
	_ = out.Flush()
	return nil
}

// answering gives an answer its time, whatever was waited for before.
func answering(rw http.ResponseWriter) {
	_ = http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(answerTime))
}

// wait returns the duration of a member or parameter, from 0 to most; 0 is not a bound.
func wait(name, text string, most time.Duration) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := duration.Parse(text)
	if err != nil || d < 0 || most > 0 && d > most {
		return 0, badRequest("%s is not a duration such as 30s or 2h, or is too long", name)
	}
	return d, nil
}
