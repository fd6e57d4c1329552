package survive

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"thread/engine"
	"thread/outbox"
)

// liked is a message that only notifies user 7, with nothing left to chance.
func liked(n int) string { return message(n, outbox.LikeCreated, "human") }

func message(n int, typ, target string) string {
	return fmt.Sprintf(`{"event_id":"e%d","event_type":%q,"occurred_at":"2026-02-26T12:30:15Z","trace_id":"t%d","thread_id":1,"comment_id":%d,"actor_user_id":3,"target_user_id":7,"target_user_type":%q}`,
		n, typ, n, n, target)
}

// liking is fresh with a message that is pending.
func liking(t *testing.T, dir string) {
	fresh(t, dir)
	thread(t, "", "outbox", "add", "--thread", dir, "--message", liked(1))
}

// triggering is fresh with a message that starts a handler.
func triggering(t *testing.T, dir string) {
	fresh(t, dir)
	thread(t, "", "outbox", "add", "--thread", dir, "--message", message(1, outbox.CommentReplied, "agent"))
}

// refused is triggering after a handler that wants to see the message never again.
func refused(t *testing.T, dir string) {
	triggering(t, dir)
	thread(t, "", "outbox", "relay", "--thread", dir, "--once", "--", "sh", "-c", "exit 65")
}

// notifiedOnly continues triggering: a notification does not wait for the agent, and the
// relay was killed in the agent's first attempt.
func notifiedOnly(t *testing.T, dir string) {
	t.Helper()
	if r := run(t, "", program, "outbox", "relay", "--thread", dir, "--once", "--", "sh", "-c", "kill -9 $PPID"); r.code == 0 {
		t.Fatalf("the relay was not killed: %v", r)
	}
}

// notified is liking after a relay.
func notified(t *testing.T, dir string) {
	liking(t, dir)
	thread(t, "", "outbox", "relay", "--thread", dir, "--once")
}

// takable is fresh with an application's database in it, whose outbox table has two
// rows.
func takable(t *testing.T, dir string) {
	fresh(t, dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range []string{
		`CREATE TABLE event_outbox (event_id TEXT, event_type TEXT, thread_id INTEGER, trace_id TEXT, occurred_at TEXT, status TEXT)`,
		`INSERT INTO event_outbox VALUES ('e1', 'thread.created', 1, 't1', '2026-02-26T12:30:15Z', 'pending'), ('e2', 'thread.created', 2, 't2', '2026-02-26T12:30:15Z', 'pending')`,
	} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
}

// readOutbox returns what has become of the messages, in words.
func readOutbox(th *engine.Thread) (text string, err error) {
	err = th.View(ctx, func(tx *engine.Tx) error {
		text = ""
		list, err := outbox.List(tx, outbox.Query{Limit: 1 << 20})
		if err != nil || len(list) == 0 {
			return err
		}
		for _, r := range list {
			text += fmt.Sprintf("\nmessage %s %s %s", r.EventID, r.EventType, r.Status)
		}
		notes, err := outbox.Notifications(tx, "7", false, 0)
		for _, n := range notes {
			text += fmt.Sprintf("\nnotification %s %v", n.EventID, n.ReadAt != nil)
		}
		if err != nil {
			return err
		}
		s, err := outbox.ReadSettings(tx)
		text += fmt.Sprintf("\nself action %v", s.SelfAction)
		return err
	})
	return text, err
}
