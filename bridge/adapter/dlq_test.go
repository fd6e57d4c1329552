package adapter

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"thread/bridge/trigger"
)

// a dead message has each attempt with its own reason and time, the newest of
// them when there are many.
func TestDLQHistory(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000).UTC()
	r := trigger.Reason{History: []trigger.Attempt{{Number: 1, At: at, Error: "a"}, {Number: 2, At: at.Add(time.Second), Error: "b"}}}
	h := DLQHeaders(&trigger.Message{ID: "m"}, &r)
	if h["x-dlq-history"] != `[{"attempt":1,"at":"2023-11-14T22:13:20Z","error":"a"},{"attempt":2,"at":"2023-11-14T22:13:21Z","error":"b"}]` {
		t.Error(h["x-dlq-history"])
	}
	for n := range 30 {
		r.History = append(r.History, trigger.Attempt{Number: int64(n + 3), At: at, Error: strings.Repeat("x", 250)})
	}
	h = DLQHeaders(&trigger.Message{ID: "m"}, &r)
	var got []trigger.Attempt
	if err := json.Unmarshal([]byte(h["x-dlq-history"]), &got); err != nil || len(h["x-dlq-history"]) > maxHistory || len(got) < 10 || got[len(got)-1].Number != 32 {
		t.Error(err, h)
	}
	if _, ok := DLQHeaders(&trigger.Message{ID: "m"}, &trigger.Reason{})["x-dlq-history"]; ok {
		t.Error("an empty history")
	}
}
