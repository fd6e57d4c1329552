//go:build linux

package serve

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"thread/history"
)

// TestAPIDay: what an agent and its operator do in a day, over HTTP alone. Each answer is
// checked against the description.
func TestAPIDay(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	do := func(method, path, body string, want int, says ...any) map[string]any {
		t.Helper()
		typ := ""
		if body != "" {
			typ = "application/json"
		}
		status, a := b.exchange(method, "/threads/thread/"+path, typ, body, "Accept", "application/json")
		if status != want {
			t.Errorf("%s %s %s: %d %v, want %d", method, path, body, status, a, want)
		}
		for i := 0; i+1 < len(says); i += 2 {
			if got := a[says[i].(string)]; got != says[i+1] {
				t.Errorf("%s %s: %v is %v, want %v", method, path, says[i], got, says[i+1])
			}
		}
		return a
	}
	items := func(path, name string) []any {
		t.Helper()
		list, _ := do("GET", path, "", 200)[name].([]any)
		return list
	}

	// A conversation.
	do("POST", "sessions", `{"id":"S","subject_ref":"user:7","agent_name":"coder"}`, 200, "id", "S", "status", "active")
	do("POST", "sessions", `{"id":"S"}`, 409)
	do("POST", "sessions", `{"idd":"S"}`, 400, "detail", `the member "idd" is not known: did you mean id?`)
	do("POST", "sessions/S/messages", `{"id":"m1","role":"user","content":"hello"}`, 200, "content", "hello", "session_id", "S")
	do("POST", "sessions/S/messages", `{"id":"m1","role":"user","content":"again"}`, 409)
	do("POST", "sessions/S/messages", `{"role":"nobody","content":"x"}`, 400)
	do("POST", "sessions/none/messages", `{"role":"user","content":"x"}`, 404)
	do("GET", "sessions/none", "", 404)
	if n := len(items("sessions?subject=user:7", "sessions")); n != 1 {
		t.Errorf("%d sessions", n)
	}

	// A run of it, from the queue.
	do("POST", "runs", `{"id":"R","session_id":"S"}`, 200, "status", "queued", "trigger_type", "api_action", "initiator_ref", "user:7")
	do("POST", "runs/next", "", 200, "id", "R", "status", "running", "attempt", 1.0)
	do("POST", "runs/next", "", 204)
	do("POST", "runs/start", `{"session_id":"S"}`, 409)
	step := do("POST", "runs/R/steps?attempt=1", `{"name":"think","input":{"a":1}}`, 200, "step_type", "step", "seq", 1.0)
	do("POST", "runs/R/steps", fmt.Sprintf(`{"id":%q,"status":"failed"}`, step["id"]), 200, "name", "think", "status", "failed")
	do("POST", "runs/R/steps?attempt=2", `{"name":"late"}`, 409)
	do("POST", "runs/R/tools", `{"tool_name":"shell","request":[1],"duration_ms":5}`, 200, "duration_ms", 5.0)
	do("POST", "runs/R/hooks", `{"hook_name":"h","event_name":"e"}`, 200)
	do("POST", "runs/R/actions", `{"action_name":"deploy","caller_type":"user"}`, 200)
	do("POST", "runs/R/artifacts", `{"type":"file","path":"report.md"}`, 200)
	do("POST", "sessions/S/messages", `{"run_id":"R","role":"assistant","content":[{"type":"text","text":"hi"}]}`, 200, "run_id", "R")
	do("POST", "runs/R/beat", "", 200, "cancel_requested_at", nil)
	do("POST", "runs/R/cancel", "", 200)
	if a := do("POST", "runs/R/beat", "", 200); a["cancel_requested_at"] == nil {
		t.Error("a beat does not tell of the cancellation")
	}
	do("POST", "runs/R/end", `{"status":"never"}`, 400)
	do("POST", "runs/R/end", `{"status":"failed","error_message":"no answer"}`, 200, "status", "failed", "error_message", "no answer")
	do("POST", "runs/R/steps", `{"name":"late"}`, 409)
	parts := do("GET", "runs/R", "", 200)
	for _, name := range []string{"steps", "tools", "hooks", "actions", "artifacts"} {
		if list, _ := parts[name].([]any); len(list) != 1 {
			t.Errorf("%s: %v", name, list)
		}
	}
	do("POST", "runs/R/requeue", "", 200, "status", "queued")
	do("POST", "runs/R/requeue", "", 409)

	// It waits for an approval.
	do("POST", "runs/next", "", 200, "id", "R")
	do("POST", "runs/R/approve", `{}`, 409)
	h, err := history.Open(t.Context(), b.t.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Attach("R", 0).Wait(t.Context(), "k", history.Wait{For: history.ForApproval}); !errors.Is(err, history.ErrWaiting) {
		t.Fatal(err)
	}
	do("POST", "runs/R/end", `{"status":"waiting"}`, 200, "status", "waiting")
	do("POST", "runs/R/deny", `{"reasons":"x"}`, 400)
	do("POST", "runs/R/approve", `{"key":"other"}`, 409)
	do("POST", "runs/none/approve", `{}`, 404)
	do("POST", "runs/R/approve", `{"by":"ann","data":[80]}`, 200, "status", "queued")
	do("POST", "runs/R/deny", `{}`, 409)
	do("GET", "runs?limit=0", "", 400)
	do("GET", "runs?stat=x", "", 400)
	if n := len(items("runs?session=S&status=queued", "runs")); n != 1 {
		t.Errorf("%d runs", n)
	}
	if n := len(items("sessions/S/messages", "messages")); n != 2 {
		t.Errorf("%d messages", n)
	}
	do("POST", "runs/R/cancel", "", 200, "status", "cancelled")
	do("DELETE", "sessions/S", "", 204)
	do("GET", "sessions/S", "", 404)
	h, err = history.Open(t.Context(), b.t.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for range h.Runs(t.Context(), history.Query{}) {
		t.Error("a run is left")
	}

	// Consumers, dead letters and what is planned.
	do("PUT", "consumers/w", `{"filter":"type = 't'","max_attempts":1}`, 204)
	do("PUT", "consumers/w", `{"handler":"rm -rf /"}`, 400)
	do("PUT", "consumers/w", `{}`, 409)
	do("PUT", "consumers/v", `{"filter":"type ="}`, 400)
	for range 2 { // sent twice, stored once
		status, a := b.exchange("POST", eventsAt, oneType, `{"source":"s","type":"t","content":"x"}`, "Idempotency-Key", "k1")
		if status != 200 || fmt.Sprint(a["ids"]) != "[1]" {
			t.Errorf("%d %v", status, a)
		}
		status, a = b.exchange("POST", eventsAt, "application/x-ndjson", strings.Repeat(`{"source":"s","type":"u","content":"x"}`+"\n", 2), "Idempotency-Key", "k1")
		if status != 200 || fmt.Sprint(a["ids"]) != "[2 3]" {
			t.Errorf("%d %v", status, a)
		}
	}
	do("GET", "events/1", "", 200, "id", 1.0, "content", "x")
	do("GET", "events/4", "", 404)
	do("GET", "events/x", "", 400)
	do("GET", "events/1/why?consumer=w", "", 200)
	for query, want := range map[string]string{
		"":                            "[map[count:2 source:s subtype:<nil> type:u] map[count:1 source:s subtype:<nil> type:t]] true",
		"?limit=1":                    "[map[count:2 source:s subtype:<nil> type:u]] false",
		"?by=source":                  "[map[count:3 source:s]] true",
		"?by=type&filter=type='t'":    "[map[count:1 type:t]] true",
		"?since=2099-01-01T00:00:00Z": "[] true",
		"?by=subtype&limit=1000":      "[map[count:3 subtype:<nil>]] true",
		"?since=2000-01-01T00:00:00Z&by=source,type&limit=1": "[map[count:2 source:s type:u]] false",
	} {
		if a := do("GET", "stats"+query, "", 200); fmt.Sprint(a["counts"], a["complete"]) != want {
			t.Errorf("stats%s: %v, want %s", query, a, want)
		}
	}
	for _, query := range []string{"?by=content", "?since=1h", "?limit=0", "?filter=type+="} {
		do("GET", "stats"+query, "", 400)
	}
	do("GET", "events/1/why", "", 400)
	d := do("POST", "consumers/w/next", "", 200)["delivery"]
	do("POST", "consumers/w/retry", fmt.Sprintf(`{"delivery":%q,"error":"no route"}`, d), 200, "settled", true)
	if n := len(items("dead?consumer=w", "letters")); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	do("POST", "dead/retry", `{}`, 400)
	do("POST", "dead/retry", `{"consumer":"w"}`, 200, "count", 1.0)
	d = do("POST", "consumers/w/next", "", 200)["delivery"]
	do("POST", "consumers/w/retry", fmt.Sprintf(`{"delivery":%q}`, d), 200)
	do("POST", "dead/drop", `{"filter":"type = 't'"}`, 200, "count", 1.0)
	do("POST", "schedules", `{"name":"daily","when":"@daily","event":{"source":"s","type":"t","content":""}}`, 200, "name", "daily")
	once := do("POST", "schedules", `{"delay":"1h","event":{"source":"s","type":"t","content":""}}`, 200)
	do("POST", "schedules", `{"delay":"1h","at":"2099-01-01T00:00:00Z","event":{"source":"s","type":"t","content":""}}`, 400)
	do("POST", "schedules", `{"delay":"1h"}`, 400)
	if n := len(items("schedules", "schedules")); n != 2 {
		t.Errorf("%d planned", n)
	}
	do("DELETE", fmt.Sprintf("schedules/%v?once=true", once["delayed_id"]), "", 204)
	do("DELETE", "schedules/daily", "", 204)
	do("DELETE", "schedules/daily", "", 404)
	if list, _ := do("GET", "consumers", "", 200)["subscriptions"].([]any); len(list) != 1 {
		t.Errorf("consumers: %v", list)
	}
	do("DELETE", "consumers/w", "", 204)
	do("DELETE", "consumers/w", "", 404)
	if d, err := b.t.DueFor(t.Context(), "w", 0); err == nil {
		t.Errorf("w is subscribed: %+v", d)
	}
}
