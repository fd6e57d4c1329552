package trigger

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"thread/engine"
)

// TestRow: a row of the ledger comes back as it was stored, and one that is cut short
// or has something behind it is not read.
func TestRow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	some := func(usual string) string {
		return []string{"", usual, "a", strings.Repeat("long ", 60), "ä\x00\n"}[r.IntN(5)]
	}
	maybe := func() *string {
		if s := some("agent/7"); s != "a" {
			return &s
		}
		return nil
	}
	for range 300 {
		id := some("orders:0:7")
		row := Row{MessageID: id, TraceID: []string{"queue-" + id, some("queue-")}[r.IntN(2)], Queue: some("orders"), EventName: some(defaultEventName), TenantID: some(DefaultTenant),
			Status: statuses[r.IntN(len(statuses))], DurationMS: milliseconds(time.Duration(r.Int64N(1 << 40))), AgentRunID: maybe(), RetryCount: r.Int64N(300), Error: maybe(),
			Event: r.Int64N(1 << 50), Consumer: some("inbox"), at: 1_700_000_000_123 + r.Int64N(1<<30)}
		if calls := r.Int64N(3); calls < 2 {
			row.ModelCalls = &calls
		}
		for n := range r.Int64N(3) {
			row.Attempts = append(row.Attempts, Attempt{n + 1, time.UnixMilli(1_700_000_000_000 + r.Int64N(1<<30)).UTC(), some("boom")})
		}
		b := row.encode()
		got, err := decodeRow(b)
		row.At = time.UnixMilli(row.at).UTC().Format(receivedLayout)
		if err != nil || !reflect.DeepEqual(got, row) {
			t.Fatalf("%v\n%+v\n%+v", err, got, row)
		}
		as, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeRow(as); err != nil || !reflect.DeepEqual(got, row) {
			t.Fatalf("a row of JSON: %v\n%+v\n%+v", err, got, row)
		}
		if _, err := decodeRow(as[:len(as)-1]); !errors.Is(err, engine.ErrCorrupt) {
			t.Fatal(err)
		}
		for n := range b {
			if _, err := decodeRow(b[:n]); !errors.Is(err, engine.ErrCorrupt) {
				t.Fatalf("%d of %d bytes: %v", n, len(b), err)
			}
		}
		if _, err := decodeRow(append(b, 0)); !errors.Is(err, engine.ErrCorrupt) {
			t.Fatal(err)
		}
	}
	row := Row{MessageID: "orders:0:123456", TraceID: "queue-orders:0:123456", Queue: "orders", EventName: defaultEventName, TenantID: DefaultTenant, Status: StatusStored, Event: 123456, at: 1_700_000_000_123}
	as, _ := json.Marshal(row)
	if n := len(row.encode()); n > len(as)/4 {
		t.Errorf("%d bytes, as JSON %d", n, len(as))
	}
}
