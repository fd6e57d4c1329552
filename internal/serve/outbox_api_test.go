//go:build linux

package serve

import (
	"fmt"
	"strings"
	"testing"

	"thread/engine"
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
