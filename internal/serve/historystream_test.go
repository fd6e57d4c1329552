//go:build linux

package serve

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	"thread/history"
)

// TestSessionStream is H-11: who follows a session over HTTP and comes back with
// Last-Event-ID gets each of its history events once and in order, with writers at work
// all the time, and none of another session: of a history that is served, and of the
// thread whose history it is.
func TestSessionStream(t *testing.T) {
	t.Run("history", func(t *testing.T) {
		sessionStream(t, func(thread, history string) (string, string) {
			return history, "?thread=" + url.QueryEscape(history) + "&filter=" + url.QueryEscape("source = 'session:S' AND type = 'message'")
		})
	})
	t.Run("thread", func(t *testing.T) {
		sessionStream(t, func(thread, _ string) (string, string) {
			return thread, "?thread=" + url.QueryEscape(thread) + "&session=S&filter=" + url.QueryEscape("type = 'message'")
		})
	})
}

func sessionStream(t *testing.T, ask func(thread, history string) (served, query string)) {
	b := newBench(t)
	s := newShop(b)
	for _, id := range []string{"S", "T"} {
		if _, err := s.h.StartSession(t.Context(), history.SessionRow{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	const messages = 60
	write := func(from, to int) {
		for i := from; i < to; i++ {
			for _, session := range []string{"S", "T"} {
				m := history.MessageRow{ID: fmt.Sprint(session, i), SessionID: session, Role: "user", Content: []byte(`"x"`)}
				if err := s.h.Put(t.Context(), &m); err != nil {
					t.Error(err)
				}
			}
		}
	}
	write(0, 10)
	served, query := ask(b.t.Dir(), filepath.Join(b.t.Dir(), history.Dir))
	b.listen(Options{Threads: []string{served}})
	written := make(chan struct{})
	go func() {
		defer close(written)
		write(10, messages)
	}()
	defer func() { <-written }()
	last, n := int64(0), 0
	for n < messages {
		source := b.follow(query, "Last-Event-ID", fmt.Sprint(last))
		for i := 0; i < 13 && n < messages; i++ { // then the connection breaks
			e := source.event()
			c, err := history.ParseChange(&e)
			if err != nil || c.ID <= last || c.EntityID != fmt.Sprint("S", n) {
				t.Fatalf("message %d is event %d after %d, of %s, %v", n, c.ID, last, c.EntityID, err)
			}
			last = c.ID
			n++
		}
		source.body.Close()
	}
}
