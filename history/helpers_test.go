package history

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"thread/engine"
)

// tester is what both testing.T and rapid.T are.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

var ctx = context.Background()

// clock is one that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 18, 10, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// inbox makes a thread directory and opens its history.
func inbox(t *testing.T, opts ...Option) *History {
	t.Helper()
	return openIn(t, t.TempDir(), opts...)
}

func openIn(t tester, dir string, opts ...Option) *History {
	t.Helper()
	dir = filepath.Join(dir, "inbox")
	if _, err := engine.Init(dir); err != nil {
		t.Fatal(err)
	}
	return reopen(t, dir, opts...)
}

func reopen(t tester, dir string, opts ...Option) *History {
	t.Helper()
	h, err := Open(ctx, dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func ok(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func one[T any](t tester) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

// all returns what a query gives.
func all[T any](t tester, seq iter.Seq2[T, error]) (list []T) {
	t.Helper()
	for v, err := range seq {
		ok(t, err)
		list = append(list, v)
	}
	return list
}

func ids[T any, P interface {
	*T
	Row
}](t tester, seq iter.Seq2[T, error]) string {
	t.Helper()
	s := ""
	for _, v := range all(t, seq) {
		s += *idOf(P(&v)) + " "
	}
	return s
}

func text(r Row) string {
	b, err := AppendJSON(nil, r)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// dump returns all records of both tables.
func dump(t tester, h *History) map[string]string {
	t.Helper()
	m := map[string]string{}
	ok(t, h.View(ctx, func(tx *Tx) error {
		for name, table := range map[string]*engine.Records{"rows": tx.rows, "by": tx.by.Records} {
			for rec := range table.Ascend(nil, nil) {
				m[fmt.Sprintf("%s %q", name, rec.Key)] = fmt.Sprintf("%q", rec.Value)
			}
		}
		return nil
	}))
	return m
}

// rebuilt fails unless the tables are what the log says.
func rebuilt(t tester, h *History) {
	t.Helper()
	before := dump(t, h)
	_, err := h.Rebuild(ctx)
	ok(t, err)
	now := dump(t, h)
	for k, v := range before {
		if now[k] != v {
			t.Errorf("%s was %s and is rebuilt as %q", k, v, now[k])
		}
	}
	for k, v := range now {
		if _, known := before[k]; !known {
			t.Errorf("%s is rebuilt as %s and was not there", k, v)
		}
	}
}

func session(t tester, h *History, id string) SessionRow {
	t.Helper()
	return one[SessionRow](t)(h.StartSession(ctx, SessionRow{ID: id, SubjectRef: "user:" + id, AgentName: "coder"}))
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }
