//go:build linux

package serve

import (
	"fmt"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/outbox"
)

// TestAPIOutbox: the outbox is read and its failed messages are sent again over HTTP, by
// clients that are for its consumer.
func TestAPIOutbox(t *testing.T) {
	b := newBench(t)
	const mail = "a-token-for-the-consumer-mail-1"
	b.listen(Options{Clients: append([]Client{{Name: "mail", Rights: "admin", Token: mail, Consumers: []string{"mail"}}}, testClients...)})
	update := func(do func(tx *engine.Tx) error) {
		t.Helper()
		if err := b.t.Update(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	b.subscribe(engine.Subscription{Consumer: outbox.Consumer, Pull: true, MaxAttempts: 1, Filter: new("source = 'outbox'")}) // no relay takes them
	for _, id := range []string{"e/1", "stats", "e3"} {
		update(func(tx *engine.Tx) error {
			_, err := outbox.Insert(tx, outbox.Message{EventID: id, EventType: outbox.ActionFeedback, DedupeKey: id})
			return err
		})
	}
	do := func(method, path, body string, want int, says string, header ...string) {
		t.Helper()
		typ := map[bool]string{true: oneType}[body != ""]
		status, a := b.exchange(method, "/threads/thread/outbox/"+path, typ, body, append([]string{"Accept", oneType}, header...)...)
		if text := fmt.Sprint(a); status != want || !strings.Contains(text, says) {
			t.Errorf("%s %s %s: %d %s, want %d with %q", method, path, body, status, text, want, says)
		}
	}
	for range 2 { // the first two fail for good
		d, err := b.t.Next(t.Context(), outbox.Consumer, engine.NextOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.t.SettleDelivery(t.Context(), outbox.Consumer, d.Number(), engine.Result{Verdict: engine.Failed, ExitCode: 1, Error: "no route"}); err != nil {
			t.Fatal(err)
		}
	}
	do("GET", "stats", "", 200, "failed:2 oldest_pending_at:20")
	do("GET", "messages?status=failed&limit=1", "", 200, "complete:false")
	do("GET", "messages?status=failed&after=1&type=agent.action.feedback", "", 200, "complete:true")
	do("GET", "messages?status=lost", "", 400, "pending, processed or failed")
	do("GET", "messages?limit=0", "", 400, "limit")
	do("GET", "messages/e%2F1", "", 200, "error:no route event_id:e/1")
	do("GET", "messages/stats", "", 200, "status:failed")
	do("GET", "messages/none", "", 404, "no message")
	for _, body := range []string{`{}`, `{"all":true,"event_ids":["e3"]}`, `{"event_id":"e3"}`, `{"event_ids":[` + strings.Repeat(`"e3",`, 500) + `"e3"]}`} {
		do("POST", "retry", body, 400, "problem:invalid")
	}
	do("POST", "retry", `{"event_ids":["e/1","none"]}`, 404, "no message")
	do("POST", "retry", `{"event_ids":["e/1","e3"]}`, 409, "problem:not-failed")
	do("GET", "stats", "", 200, "failed:2 ") // all that are named or none
	for range 2 {
		do("POST", "retry", `{"event_ids":["e/1"]}`, 200, "retried:1", "Idempotency-Key", "k")
	}
	do("POST", "retry", `{"all":true}`, 200, "retried:1")
	do("POST", "retry", `{"all":true}`, 200, "retried:0")
	do("GET", "stats", "", 200, "failed:0 ")
	for _, path := range []string{"stats", "messages", "messages/e3"} {
		do("GET", path, "", 403, "not for that thread or consumer", "Authorization", "Bearer "+mail)
	}
	do("POST", "retry", `{"all":true}`, 403, "not for that thread or consumer", "Authorization", "Bearer "+mail)
}

// TestAPIOutboxAdd: messages are stored over HTTP as by outbox add and outbox push, alone and
// with their events.
func TestAPIOutboxAdd(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	b.subscribe(engine.Subscription{Consumer: outbox.Consumer, Pull: true, Filter: new("source = 'outbox'")}) // no relay takes them
	do := func(method, path, typ, body string, want int, says string, header ...string) {
		t.Helper()
		status, a := b.exchange(method, "/threads/thread/outbox/"+path, typ, body, append([]string{"Accept", oneType}, header...)...)
		if text := fmt.Sprint(a); status != want || !strings.Contains(text, says) {
			t.Errorf("%s %s %.100s: %d %s, want %d with %q", method, path, body, status, text, want, says)
		}
	}
	stored := func(want int) {
		t.Helper()
		if n := len(b.stored()); n != want {
			t.Fatalf("%d events are stored, want %d", n, want)
		}
	}
	const message = `{"event_id":"e%d","event_type":"like.created","thread_id":1,"comment_id":%[1]d,"actor_user_id":2}`
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, duplicate := range []string{"false", "true"} {
		do("POST", "messages", oneType, fmt.Sprintf(message, 1), 200, "duplicate:"+duplicate, "Traceparent", trace)
	}
	do("GET", "messages/e1", "", "", 200, "traceparent:"+trace)
	do("POST", "messages?delay=1h", oneType, fmt.Sprintf(message, 2), 200, "event_id:e2", "Traceparent", "no trace")
	r, err := outboxRecord(b, "e2")
	if err != nil || strings.Contains(string(r.Payload), "no trace") {
		t.Errorf("%s %v", r.Payload, err)
	}
	created, _ := event.ParseTime(r.CreatedAt)
	if at, _ := event.ParseTime(r.AvailableAt); at-created < 59*60*1000 {
		t.Errorf("with a delay it is available at %s, stored at %s", r.AvailableAt, r.CreatedAt)
	}
	for body, want := range map[string]int{`{}`: 400, ``: 400, `[]`: 400, `{"event_type":"like.created"}`: 400, `{"event_type":"x","thread_id":1}`: 400, strings.Repeat(" ", 1<<20+1): 413} {
		do("POST", "messages", oneType, body, want, "problem:")
	}
	do("POST", "messages?delay=soon", oneType, fmt.Sprintf(message, 3), 400, "delay")
	do("POST", "messages", "text/plain", fmt.Sprintf(message, 3), 415, "media-type")
	stored(2)

	line := func(n int, more string) string {
		return fmt.Sprintf(`{"source":"app","type":"t","content":"<&>","dedupe_key":"k%d","outbox":%s}`+"\n", n, fmt.Sprintf(message, n)) + more
	}
	plain := `{"source":"app","type":"t","content":"x"}` + "\n"
	const lines = "application/x-ndjson"
	do("POST", "push", lines, line(4, "\n"+plain)+`{"source":"app","type":"t","content":"x","outbox":{"event_type":"x"}}`, 400, "line 4: ")
	do("POST", "push", lines, line(4, `{"source":1}`), 400, "line 2: ")
	do("POST", "push", lines, strings.Repeat(plain, outbox.MaxEntries+1), 400, "more than 10000 lines")
	do("POST", "push", lines, strings.Repeat(" ", 16<<20+1), 413, "too-large")
	do("POST", "push", oneType, plain, 415, "media-type")
	stored(2)
	for range 2 {
		do("POST", "push", lines, line(4, plain), 200, "stored:[map[duplicate:false id:3 outbox:map[dedupe_key:like:4:2: duplicate:false event_id:e4 id:4 ", "Idempotency-Key", "p")
	}
	do("POST", "push", lines, line(4, ""), 200, "stored:[map[duplicate:true id:3 outbox:<nil>]]")
	stored(5)
	if e := b.stored()[2]; e.Content != "<&>" {
		t.Errorf("the event has %q", e.Content)
	}
}

// outboxRecord returns a record of the thread of the bench.
func outboxRecord(b *bench, eventID string) (r outbox.Record, err error) {
	err = b.t.View(b.Context(), func(tx *engine.Tx) error {
		id, _, err := outbox.Find(tx, eventID)
		if err == nil {
			r, _, err = outbox.Get(tx, id)
		}
		return err
	})
	return r, err
}
