package outbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/event"
)

// modelRecord is what a record should be.
type modelRecord struct {
	id        int64
	eventID   string
	key       string
	typ       string
	stored    time.Time
	at        time.Time // available
	status    Status
	failures  int64 // all of them
	round     int64 // since the start or the latest retry
	trigger   bool
	notifies  bool
	receipts  int
	begun     bool // its handler was to run: the notification does not wait for the end
	forgiving bool // its wait has to be read from the thread
}

// O-06 to O-08, O-12, O-13, O-17: the outbox against a plain list, through inserts,
// duplicates, receipts of every kind, retries, relays that die at every place, and
// time.
func TestModel(t *testing.T) {
	defer func() { reached = func(string) {} }()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > 25 && !t.Failed() {
			return // each of them syncs some hundred times
		}
		const attempts = 3
		c := newClock()
		th := newThread(t, engine.WithClock(c.Now))
		set(t, th, func(s *Settings) { s.MaxAttempts, s.DedupeWindow = attempts, time.Minute })
		noError(t, th.Update(ctx, Subscribe))
		var list []*modelRecord
		first := func() (best *modelRecord) {
			for _, r := range list {
				if r.status == Pending && !r.at.After(c.Now()) && (best == nil || r.at.Before(best.at) || r.at.Equal(best.at) && r.id < best.id) {
					best = r
				}
			}
			return best
		}
		failed := func(r *modelRecord, counted bool) {
			r.at = c.Now().Add(time.Millisecond) // for now
			if r.forgiving = true; counted {
				r.failures++
				r.round++
			}
			if counted && r.round == attempts {
				r.status, r.forgiving = Failed, false
			}
			if r.trigger {
				r.receipts++
			}
		}
		feedback := func(r *modelRecord) { // of its latest receipt
			list = append(list, &modelRecord{id: list[len(list)-1].id + 1, eventID: fmt.Sprintf("fb_%s_%d", r.eventID, r.receipts), typ: ActionFeedback,
				stored: c.Now(), at: c.Now(), status: Pending, key: "feedback:"})
		}
		type died struct{}
		// relay hands on what is due, and dies at the n-th place, if there is one.
		relay := func(rt *rapid.T, n int) {
			outcomes := rapid.SampledFrom([]string{Accepted, Accepted, Ignored, Refused, "exit 65", "exit 75"})
			var out *modelRecord    // begun
			var settle func()       // what its result means
			interrupted := func() { // by the relay before this one
				for _, r := range list {
					if r.status == "out" {
						r.status = Pending
						if failed(r, true); r.trigger {
							feedback(r)
						}
					}
				}
			}
			places := 0
			var told []any // the event_ids of what was settled without a handler
			reached = func(place string) {
				switch place {
				case "stored":
					if interrupted(); settle != nil {
						settle()
					}
					out, settle = nil, nil
					// In the same transaction all went that was due before the first
					// message that runs the handler.
					for r := first(); r != nil && !r.trigger; r = first() {
						if len(told) == 0 || told[0] != r.eventID {
							rt.Fatalf("%v went, want %+v", told, r)
						}
						told, r.status = told[1:], Processed
					}
					if len(told) > 0 {
						rt.Fatalf("%v went, and was not due", told)
					}
					if r := first(); r != nil {
						r.begun = true
					}
				case "begun":
					if out = first(); out == nil {
						rt.Fatal("something was handed on, but nothing is due")
					}
				}
				if places++; places == n {
					if place == "stored" { // the next one is begun already, if there is one
						out = first()
					}
					if out != nil && out.status == Pending {
						out.status = "out"
					}
					panic(died{})
				}
			}
			defer func() {
				if p := recover(); p != nil && p != (died{}) {
					panic(p)
				}
			}()
			o := Options{Mode: Once}
			o.run = func(d *delivery) (execution, error) {
				if out == nil || out.id != d.id || !out.trigger || d.attempt != out.failures+1 {
					rt.Fatalf("event %d ran at attempt %d, want %+v", d.id, d.attempt, out)
				}
				reached("running")
				r, outcome := out, outcomes.Draw(rt, "outcome")
				settle = func() {
					switch outcome {
					case Accepted, Ignored:
						r.status = Processed
						r.receipts++
					case "exit 75":
						failed(r, false)
					case "exit 65":
						r.round = attempts - 1
						failed(r, true)
					case Refused:
						failed(r, true)
					}
					feedback(r)
				}
				switch outcome {
				case "exit 65":
					return execution{code: 65}, nil
				case "exit 75":
					return execution{code: 75}, nil
				}
				return execution{out: []byte(`{"status":"` + outcome + `"}`)}, nil
			}
			o.Log = func(_ bool, format string, args ...any) {
				if strings.Contains(format, "trigger=false") {
					told = append(told, args[0])
				}
			}
			// A look that postpones is not a handing on, and no place to die at either.
			if _, err := Relay(ctx, th, o); err != nil {
				rt.Fatal(err)
			}
			if r := first(); r != nil {
				rt.Fatalf("%+v was left", r)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"insert": func(rt *rapid.T) {
				n := int64(rapid.IntRange(1, 3).Draw(rt, "comment"))
				m := rapid.SampledFrom([]Message{reply(n), like(n), {EventType: ThreadCreated, ThreadID: NumberID(n)}}).Draw(rt, "message")
				m.EventID = fmt.Sprint("evt_", rapid.IntRange(1, 40).Draw(rt, "event_id"))
				var want, holder *modelRecord
				for _, r := range list {
					if r.eventID == m.EventID {
						want = r
					}
				}
				for _, r := range list {
					if r.key == m.DefaultDedupeKey() {
						holder = r // the latest
					}
				}
				if want == nil && holder != nil && holder.status != Failed && c.Now().Sub(holder.stored) < time.Minute {
					want = holder
				}
				in := insert(t, th, m)
				if in.Duplicate != (want != nil) || want != nil && in.ID != want.id {
					rt.Fatalf("got %+v, want %+v", in, want)
				}
				if want == nil {
					list = append(list, &modelRecord{id: in.ID, eventID: m.EventID, typ: m.EventType, key: m.DefaultDedupeKey(), stored: c.Now(), at: c.Now(), status: Pending,
						trigger: m.EventType == CommentReplied, notifies: m.EventType != ThreadCreated})
				}
			},
			"relay": func(rt *rapid.T) { relay(rt, 0) },
			"die":   func(rt *rapid.T) { relay(rt, rapid.IntRange(1, 9).Draw(rt, "place")) },
			"time":  func(*rapid.T) { c.move(time.Duration(rapid.IntRange(1, 40000).Draw(rt, "ms")) * time.Millisecond) },
			"retry": func(rt *rapid.T) {
				for _, r := range list {
					if r.status == Failed {
						noError(t, th.Update(ctx, func(tx *engine.Tx) error { _, err := Retry(tx, r.id); return err }))
						r.status, r.at, r.round = Pending, time.Time{}, 0
					}
				}
			},
			"": func(rt *rapid.T) {
				counts := Counts{}
				var notified []int64
				for _, r := range list {
					rec := get(t, th, r.id)
					status := r.status
					if status == "out" {
						status = Pending
					}
					if rec.Status != status || rec.RetryCount != r.failures || rec.EventID != r.eventID || len(rec.Receipts) != r.receipts {
						rt.Fatalf("got %+v, want %+v", rec, r)
					}
					if r.forgiving {
						ms, _ := event.ParseTime(rec.AvailableAt)
						if r.at, r.forgiving = time.UnixMilli(ms), false; r.at.Before(c.Now()) || r.at.After(c.Now().Add(5*time.Minute)) {
							rt.Fatalf("the wait until %v of %+v", r.at, r)
						}
					}
					switch status {
					case Pending:
						counts.Pending++
					case Failed:
						counts.Failed++
					}
					if r.notifies && (r.begun || status == Processed) {
						notified = append(notified, r.id)
					}
				}
				var s Stats
				noError(t, th.View(ctx, func(tx *engine.Tx) (err error) { s, err = ReadStats(tx); return err }))
				if s.Counts != counts || len(records(t, th, Query{})) != len(list) {
					rt.Fatalf("got %+v, want %+v", s, counts)
				}
				var got []int64
				for _, user := range []string{"5", "7"} {
					for _, n := range notifications(t, th, user) {
						got = append(got, n.ID)
					}
				}
				slices.Sort(got)
				if !slices.Equal(got, notified) {
					rt.Fatalf("notifications %v, want %v", got, notified)
				}
			},
		})
	})
}
