package engine

import (
	"fmt"
	"path/filepath"
	"testing"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// TestDueReadsOnce: a look through many events for a filter on content is
// remembered, and the next one reads only what is new. Going back makes it look
// again.
func TestDueReadsOnce(t *testing.T) {
	th, err := Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	const n = 2 * rememberAfter
	push := func(content string, times int) {
		t.Helper()
		ds := make([]event.Draft, times)
		for i := range ds {
			ds[i] = event.Draft{Source: fmt.Sprint(i % 5), Type: "t", Content: content}
		}
		if _, err := th.PushBatch(ctx, ds); err != nil {
			t.Fatal(err)
		}
	}
	lookOnce := func() (first int64, read int) {
		t.Helper()
		var l *dueSearch
		_, err := th.searchDue(ctx, func(tx *Tx) ([]*dueSearch, error) {
			s, err := tx.subscription("c")
			l = &dueSearch{sub: s}
			return []*dueSearch{l}, err
		})
		if err != nil || l.due.Err != nil {
			t.Fatal(err, l.due.Err)
		}
		return l.due.First, int(l.selection.Reads.Events)
	}
	push("x", 1)
	push("needle", 1)
	push("x", n)
	if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true", Filter: event.Text("content LIKE '%needle%'")}); err != nil {
		t.Fatal(err)
	}
	if first, _ := lookOnce(); first != 2 {
		t.Fatalf("first is %d", first)
	}
	if err := th.Ack(ctx, "c", 2); err != nil {
		t.Fatal(err)
	}
	if first, read := lookOnce(); first != 0 || read != n {
		t.Errorf("first %d, %d events read", first, read)
	}
	push("y", 3)
	if first, read := lookOnce(); first != 0 || read != 3 {
		t.Errorf("then first %d, %d events read", first, read)
	}
	push("needle", 1)
	if first, read := lookOnce(); first != n+6 || read > 4 {
		t.Errorf("then first %d, %d events read", first, read)
	}
	if _, err := th.Pop(ctx, "c", PopQuery{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if first, _ := lookOnce(); first != 2 {
		t.Errorf("after going back first is %d", first)
	}
	if err := th.Unsubscribe(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true", Filter: event.Text("content = 'y'")}); err != nil {
		t.Fatal(err)
	}
	if first, _ := lookOnce(); first != n+3 {
		t.Errorf("with another filter first is %d", first)
	}
}

// TestSeriesDecide: a thousand subscriptions that match nothing read no event.
func TestSeriesDecide(t *testing.T) {
	th, err := Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	ds := make([]event.Draft, 5000)
	for i := range ds {
		ds[i] = event.Draft{Source: fmt.Sprint("agent:", i%40), Type: "message", Content: "x"}
	}
	if _, err := th.PushBatch(ctx, ds); err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{
		"source = 'nobody'", "source LIKE '%:nobody'", "type = 'record'", "subtype IS NOT NULL", "id > 5000",
		"type = 'record' AND content LIKE '%x%'", "source = 'agent:1' AND type <> 'message'",
	} {
		f, err := filter.Compile(where)
		if err != nil {
			t.Fatal(err)
		}
		err = th.View(ctx, func(tx *Tx) error {
			s := newSelection(f)
			_, err := tx.s.Scan(store.Scan{Selection: s, Upto: tx.Head()}, func(int64) (bool, error) {
				t.Errorf("%s: a match", where)
				return false, nil
			})
			if s.Reads.Events != 0 {
				t.Errorf("%s: %d events read", where, s.Reads.Events)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestDueAsksOnce: what many filters say of many series is remembered as well.
func TestDueAsksOnce(t *testing.T) {
	th, err := Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	ds := make([]event.Draft, 300)
	for i := range ds {
		ds[i] = event.Draft{Source: fmt.Sprint("agent:", i), Type: "message", Content: "x"}
	}
	if _, err := th.PushBatch(ctx, ds); err != nil {
		t.Fatal(err)
	}
	var subs []*Subscription
	err = th.Update(ctx, func(tx *Tx) error {
		for i := range 400 {
			s := Subscription{Consumer: fmt.Sprint(i), Handler: "true", Filter: event.Text(fmt.Sprintf("source LIKE '%%:nobody-%d'", i))}
			subs = append(subs, &s)
			if err := tx.Subscribe(s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	asked := func() (n int64) {
		t.Helper()
		var looks []*dueSearch
		for _, s := range subs {
			r := new(store.Subscription)
			s.set(r)
			looks = append(looks, &dueSearch{sub: r})
		}
		if _, err := th.searchDue(ctx, func(*Tx) ([]*dueSearch, error) { return looks, nil }); err != nil {
			t.Fatal(err)
		}
		for _, l := range looks {
			if l.due.First != 0 || l.due.Err != nil {
				t.Errorf("%s: %d, %v", l.sub.Consumer, l.due.First, l.due.Err)
			}
			if l.selection != nil {
				n += l.selection.Asked
			}
		}
		return n
	}
	if n := asked(); n != 300*400 {
		t.Errorf("the filters were asked %d times", n)
	}
	if _, err := th.Push(ctx, event.Draft{Source: "agent:new", Type: "message"}); err != nil {
		t.Fatal(err)
	}
	if n := asked(); n != 400 {
		t.Errorf("after one more event the filters were asked %d times", n)
	}
}
