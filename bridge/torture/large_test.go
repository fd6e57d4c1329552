package torture

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/bridge/trigger"
)

// Proof 6, of 65 MiB that are not JSON, on each source that can carry them: Kafka's is in its own
// package. It is dead once, and what comes behind it is stored; the log says how long after.
func TestPoisonLarge(t *testing.T) {
	if os.Getenv("THREAD_KILLS") == "" {
		t.Skip("takes seconds, and hundreds of MB at the brokers")
	}
	large := `{"n":"` + strings.Repeat("x", 65<<20)
	for _, name := range []string{"mock", "redis", "redis-shared", "rabbitmq", "rabbitmq-stream", "mqtt"} {
		t.Run(name, func(t *testing.T) {
			q := queues[name](t)
			th, config := place(t, "name: large\n"+q.config)
			c := run(t, th.Dir(), config, "trigger")
			c.ready(t)
			send := func(id, body string) {
				t.Helper()
				sendTo(t, config, trigger.Message{ID: id, Key: "orders/k", Body: []byte(body)})
			}
			began := time.Now()
			send("large", large)
			sent := time.Now()
			send("behind", `{"n":1}`)
			at := map[string]time.Time{}
			for deadline := time.Now().Add(2 * time.Minute); len(at) < 2 || !q.over(th); time.Sleep(time.Millisecond) {
				rows, err := trigger.Ledger(t.Context(), th, "large", "", 100)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rows {
					if _, ok := at[r.Status]; !ok {
						at[r.Status] = time.Now()
					}
				}
				if len(rows) > 2 || time.Now().After(deadline) {
					t.Fatalf("%d rows, %v\n%s", len(rows), at, &c.log)
				}
			}
			c.end(syscall.SIGTERM)
			dead, behind := at[trigger.StatusParseError], at[trigger.StatusStored]
			if dead.IsZero() || behind.IsZero() {
				t.Fatalf("%v\n%s", at, &c.log)
			}
			t.Logf("sent within %v; dead %v and what is behind it stored %v after that, %v after it was dead",
				sent.Sub(began).Round(time.Millisecond), dead.Sub(sent).Round(time.Millisecond), behind.Sub(sent).Round(time.Millisecond), behind.Sub(dead).Round(time.Millisecond))
		})
	}
}
