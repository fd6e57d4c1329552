package history

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// jobModel is what a run is by rules that look at all runs.
type jobModel struct {
	id, session, agent, group, afterGroup string
	after                                 []string
	priority, retries, failures           int64
	due                                   time.Time
	status                                string
	attempt                               int64
	cancelIfFailed, joined                bool
}

func hasEnded(status string) bool {
	return status == Completed || status == Failed || status == Cancelled
}

// joined reports whether all that a run waits for has ended, and whether some of it failed.
func joined(all []*jobModel, j *jobModel) (is, failed bool) {
	for _, o := range all {
		if slices.Contains(j.after, o.id) || j.afterGroup != "" && o.group == j.afterGroup {
			if !hasEnded(o.status) {
				return false, false
			}
			failed = failed || o.status != Completed
		}
	}
	return true, failed
}

// cascade joins what has waited for runs that have ended.
func cascade(all []*jobModel) {
	for again := true; again; {
		again = false
		for _, j := range all {
			is, failed := joined(all, j)
			if j.status != Queued || j.joined || !is {
				continue
			}
			j.joined, again = true, true
			if failed && j.cancelIfFailed {
				j.status = Cancelled
			}
		}
	}
}

// toStart returns the id of the run that Claim has to start.
func toStart(all []*jobModel, now time.Time, agent string) string {
	var best *jobModel
	for i, j := range all {
		if j.status != Queued || !j.joined || j.due.After(now) {
			continue
		}
		free := true
		for k, o := range all {
			same := j.session != "" && o.session == j.session && o != j
			switch {
			case !same:
			case o.status == Running, o.status == Queued && o.attempt > 0 && o.due.After(now):
				free = false
			case o.status == Queued && k < i && o.joined && !o.due.After(now):
				free = false
			}
		}
		if free && (agent == "" || j.agent == agent) && (best == nil || j.priority > best.priority) {
			best = j
		}
	}
	if best == nil {
		return ""
	}
	return best.id
}

// TestJobs compares what is claimed with rules that look at all runs.
func TestJobs(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		clock := newClock()
		h := openIn(t, one[string](t)(os.MkdirTemp(base, "")), WithClock(clock.Now))
		for _, s := range []string{"s1", "s2"} {
			session(t, h, s)
		}
		var all []*jobModel
		running := map[string]*Run{}
		t.Repeat(map[string]func(*rapid.T){
			"enqueue": func(t *rapid.T) {
				j := &jobModel{id: fmt.Sprint("r", len(all)), status: Queued,
					session: rapid.SampledFrom([]string{"", "", "s1", "s2"}).Draw(t, "session"), agent: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "agent"),
					group: rapid.SampledFrom([]string{"", "g", "h"}).Draw(t, "group"), priority: rapid.Int64Range(0, 2).Draw(t, "priority"),
					retries: rapid.Int64Range(0, 2).Draw(t, "retries"), cancelIfFailed: rapid.Bool().Draw(t, "cancel")}
				if rapid.Bool().Draw(t, "delayed") {
					j.due = clock.Now().Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "delay")) * time.Second)
				}
				if len(all) > 0 && rapid.Bool().Draw(t, "joins") {
					j.after = []string{rapid.SampledFrom(all).Draw(t, "after").id}
				}
				if g := rapid.SampledFrom([]string{"", "g"}).Draw(t, "after group"); g != j.group && slices.ContainsFunc(all, func(o *jobModel) bool { return o.group == g }) {
					j.afterGroup = g
				}
				row := RunRow{ID: j.id, SessionID: j.session, AgentName: j.agent}
				ok(t, SetJob(&row, Job{Priority: j.priority, Due: j.due, Retries: j.retries, BackoffMS: 1000, Group: j.group, After: j.after, AfterGroup: j.afterGroup, CancelIfFailed: j.cancelIfFailed}))
				_, _, err := h.EnqueueJob(ctx, row, nil)
				if errors.Is(err, ErrInvalid) { // a cycle
					return
				}
				ok(t, err)
				all = append(all, j)
				cascade(all)
			},
			"claim": func(t *rapid.T) {
				agent := rapid.SampledFrom([]string{"", "a"}).Draw(t, "agent")
				var opts []RunOption
				if agent != "" {
					opts = append(opts, ForAgents(agent))
				}
				want := toStart(all, clock.Now(), agent)
				r := claims(t, h, want, opts...)
				if r == nil {
					return
				}
				running[want] = r
				for _, j := range all {
					if j.id == want {
						j.status, j.due = Running, time.Time{}
						j.attempt++
					}
				}
			},
			"end": func(t *rapid.T) {
				for _, j := range all {
					if j.status != Running {
						continue
					}
					e := End{Status: rapid.SampledFrom([]string{Completed, Failed}).Draw(t, "status")}
					if rapid.Bool().Draw(t, "later") {
						e.Later = 3 * time.Second
					}
					ok(t, running[j.id].End(ctx, e))
					switch {
					case e.Later > 0:
						j.status, j.due = Queued, clock.Now().Add(e.Later)
					case e.Status == Failed && j.failures < j.retries:
						j.failures++
						j.status, j.due = Queued, clock.Now().Add(time.Second<<(j.failures-1))
					default:
						j.status = e.Status
					}
					cascade(all)
					return
				}
			},
			"cancel": func(t *rapid.T) {
				for _, j := range all {
					if j.status == Queued && rapid.Bool().Draw(t, "this") {
						_, err := h.Cancel(ctx, j.id)
						ok(t, err)
						j.status = Cancelled
						cascade(all)
						return
					}
				}
			},
			"time":    func(t *rapid.T) { clock.add(time.Second) },
			"rebuild": func(t *rapid.T) { rebuilt(t, h) },
		})
		for _, j := range all {
			var row RunRow
			ok(t, h.Get(ctx, &row, j.id))
			if row.Status != j.status {
				t.Fatalf("%s is %s, want %s", j.id, row.Status, j.status)
			}
		}
	})
}

// TestStartRate: no span of the period has more starts than the limit by a clock that continues,
// whatever the clock of the history does, and runs are not held for longer than they must.
func TestStartRate(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		clock := newClock()
		outside, booted, boot := time.Hour, time.Duration(0), "b1" // of the test, which nothing turns back
		h := openIn(t, one[string](t)(os.MkdirTemp(base, "")), WithClock(clock.Now))
		server := rapid.Bool().Draw(t, "server") // its clock is all that is known
		if h.uptime = nil; !server {
			h.uptime = func() (string, time.Duration) { return boot, (outside - booted).Truncate(uptimeStep) }
		}
		const rate, per = 3, time.Second
		ok(t, h.Put(ctx, &LimitRow{Scope: StartsOfAll, Rate: rate, PerMS: per.Milliseconds()}))
		for range 10 {
			one[RunRow](t)(h.Enqueue(ctx, RunRow{}))
		}
		var starts []time.Duration
		for len(starts) < 9 {
			_, _, err := h.Claim(ctx)
			if err == nil {
				if starts = append(starts, outside); len(starts) > rate && outside-starts[len(starts)-1-rate] < per {
					t.Fatalf("%d starts within %v", rate+1, outside-starts[len(starts)-1-rate])
				}
				continue
			}
			var none *noneReady
			if !errors.As(err, &none) || none.at.IsZero() {
				t.Fatalf("no start and no time of the next: %v", err)
			}
			pass := time.Duration(rapid.IntRange(1, 700).Draw(t, "ms")) * time.Millisecond
			outside += pass
			clock.add(pass)
			switch jump := rapid.IntRange(0, 5).Draw(t, "jump"); {
			case jump == 0:
				clock.add(-time.Hour)
			case server:
			case jump == 1:
				clock.add(time.Hour)
			case jump == 2:
				boot, booted = boot+"x", outside
				clock.add(-time.Minute) // the clock is wrong after a boot
			}
		}
	})
}

// TestOldQueue: runs that an older version of this program has queued are started.
func TestOldQueue(t *testing.T) {
	h := inbox(t)
	session(t, h, "s")
	for _, r := range []RunRow{{ID: "a"}, {ID: "b", SessionID: "s"}, {ID: "c", SessionID: "s"}} {
		one[RunRow](t)(h.Enqueue(ctx, r))
	}
	ok(t, h.Update(ctx, func(tx *Tx) error {
		for p := []byte{byReady}; tx.any(p); {
			for rec := range tx.by.Ascend(p, after(p)) {
				number := rankOf(rec.Key)[8:]
				ok(t, tx.by.Put(append([]byte{byReadyOld}, number...), rec.Value))
				if string(rec.Value) == "b" {
					ok(t, tx.by.Put(prefix(byReadyHead, "s"), slices.Clone(number)))
				}
				ok(t, tx.by.Delete(slices.Clone(rec.Key)))
				break
			}
		}
		return nil
	}))
	for _, want := range []string{"a", "b", "c"} {
		r, _, err := h.Claim(ctx)
		ok(t, err)
		if r.ID() != want {
			t.Fatalf("claimed %s, want %s", r.ID(), want)
		}
		ok(t, r.End(ctx, End{Status: Completed}))
	}
	rebuilt(t, h)
}

// TestUptime: on Linux a limit counts by a clock that no one sets.
func TestUptime(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	boot, up := uptime()
	again, later := uptime()
	if boot == "" || up <= 0 || again != boot || later < up {
		t.Errorf("boot %q for %v, then %q for %v", boot, up, again, later)
	}
}

// TestEnqueueJobs: many jobs are enqueued together or not at all, and one whose unique key is
// taken, in the history or earlier in the list, is the run that has it.
func TestEnqueueJobs(t *testing.T) {
	h := inbox(t)
	defer h.Close()
	list := make([]NewJob, 4)
	for i, key := range []string{"a", "b", "a", ""} {
		list[i].AgentName, list[i].Input = "x", []byte(fmt.Sprint(i))
		ok(t, SetJob(&list[i].RunRow, Job{Unique: key}))
	}
	bad := append(slices.Clone(list), NewJob{RunRow: RunRow{SessionID: "missing"}})
	if err := h.EnqueueJobs(ctx, bad); !errors.Is(err, ErrNotFound) || bad[0].ID != "" {
		t.Fatalf("%v, and the first is %q", err, bad[0].ID)
	}
	if ready, _, _, err := h.Waiting(ctx); err != nil || ready != 0 {
		t.Fatalf("%d runs: %v", ready, err)
	}
	again := slices.Clone(list)
	ok(t, h.EnqueueJobs(ctx, list))
	if list[2].ID != list[0].ID || !list[2].Known || list[0].Known || list[3].Known {
		t.Errorf("%+v", list)
	}
	if err := h.EnqueueJobs(ctx, again); err != nil || !again[0].Known || again[1].ID != list[1].ID || again[3].Known {
		t.Errorf("%+v: %v", again, err)
	}
	if in, err := h.Input(ctx, list[1].ID); err != nil || string(in) != "1" {
		t.Errorf("the input is %s: %v", in, err)
	}
}

// TestRequeuedJob: a job that is queued again by hand has all of its retries again, at once; a
// run that is not a job is not one then.
func TestRequeuedJob(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	job := RunRow{ID: "job"}
	ok(t, SetJob(&job, Job{Retries: 1, BackoffMS: 1000}))
	one[RunRow](t)(h.Enqueue(ctx, job))
	fails := func(status string) {
		t.Helper()
		r, _, err := h.Claim(ctx)
		ok(t, err)
		ok(t, r.End(ctx, End{Status: Failed}))
		c.add(time.Minute)
		if is := row(t, h, "job"); is.Status != status {
			t.Fatalf("%s", text(&is))
		}
	}
	for range 2 {
		fails(Queued)
		fails(Failed)
		again := one[RunRow](t)(h.Requeue(ctx, "job"))
		if j, is := JobOf(&again); !is || j.Failures != 0 || !j.Due.IsZero() || j.Retries != 1 {
			t.Fatalf("%+v, %v", j, is)
		}
	}
	r, _, err := h.Claim(ctx)
	ok(t, err)
	ok(t, r.End(ctx, End{Status: Completed}))
	run := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "run"}))
	ok(t, run.End(ctx, End{Status: Failed}))
	again := one[RunRow](t)(h.Requeue(ctx, "run"))
	if _, is := JobOf(&again); is {
		t.Errorf("it has become a job: %s", again.Metadata)
	}
}
