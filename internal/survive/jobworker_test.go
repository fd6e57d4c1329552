//go:build linux

package survive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thread/engine"
	"thread/history"
)

// asJobWorker is the worker: of TestRate, or of TestJoins.
func asJobWorker() int {
	dir := os.Getenv(jobWorker)
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		err = map[string]func(string, *os.File) error{"rate": rateWorker, "join": joinWorker}[os.Args[1]](dir, log)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1], "worker:", err)
		return 1
	}
	return 0
}

// crew is workers that are killed over and over.
type crew struct {
	t    *testing.T
	kind string
	dir  string

	mu      sync.Mutex
	ends    bool
	workers []*exec.Cmd
	all     sync.WaitGroup
	kills   int
}

// newCrew starts n workers. Each one that is killed is followed by another.
func newCrew(t *testing.T, kind, dir string, n int) *crew {
	t.Helper()
	c := &crew{t: t, kind: kind, dir: dir, workers: make([]*exec.Cmd, n)}
	if err := os.WriteFile(filepath.Join(dir, "log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		c.all.Go(func() {
			for c.work(i) {
			}
		})
	}
	t.Cleanup(c.end)
	return c
}

// work runs the worker at that place, and reports whether another one is to follow.
func (c *crew) work(i int) bool {
	cmd := exec.Command(os.Args[0], c.kind)
	cmd.Env = append(environment(), jobWorker+"="+c.dir)
	cmd.Stderr = os.Stderr
	c.mu.Lock()
	if c.ends {
		c.mu.Unlock()
		return false
	}
	err := cmd.Start()
	c.workers[i] = cmd
	c.mu.Unlock()
	if err != nil {
		c.t.Error(err)
		return false
	}
	if err = cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() == -1 {
		return err != nil // it was killed, or its work is done
	}
	c.t.Errorf("worker %d: %v", i, err)
	return false
}

// kill kills one worker.
func (c *crew) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cmd := c.workers[rand.IntN(len(c.workers))]; cmd != nil && cmd.Process.Kill() == nil {
		c.kills++
	}
}

// killing kills a worker whenever the log has grown by that many lines, until ended.
func (c *crew) killing(lines int, ended <-chan struct{}) {
	for at := lines; ; {
		select {
		case <-ended:
			return
		case <-time.After(5 * time.Millisecond): // how often it is looked at
		}
		if n := len(c.lines()); n >= at {
			at = n + lines
			c.kill()
		}
	}
}

// end ends the workers.
func (c *crew) end() {
	c.mu.Lock()
	c.ends = true
	for _, cmd := range c.workers {
		if cmd != nil {
			_ = cmd.Process.Kill() // it may have ended
		}
	}
	c.mu.Unlock()
	c.all.Wait()
}

// lines returns the log.
func (c *crew) lines() []string {
	text, err := os.ReadFile(filepath.Join(c.dir, "log"))
	if err != nil {
		c.t.Error(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// queue stores n jobs, which job makes.
func queue(t *testing.T, h *history.History, n int, job func(i int) (history.RunRow, history.Job)) {
	t.Helper()
	for i := range n {
		row, j := job(i)
		if err := history.SetJob(&row, j); err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.EnqueueJob(ctx, row, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func openJobs(t *testing.T, dir string) *history.History {
	t.Helper()
	thread(t, "", "init", filepath.Join(dir, "inbox"))
	h, err := history.Open(ctx, filepath.Join(dir, "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

var again = history.RecoverOptions{Strategy: history.RequeueAll, MaxAttempts: 1000}

// outside returns the time of a clock that no setting of the time changes, in ms.
func outside() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &at); err != nil {
		panic(err)
	}
	return at.Nano() / 1e6
}

// rateWorker works on the runs of TestRate by a clock that the file "clock" sets. It logs for each start when
// it was at the earliest and at the latest, by the outside clock: the first reading of the
// clock by the transaction of the start, and the end of it.
func rateWorker(dir string, log *os.File) error {
	type reading struct{ set, outside int64 }
	var mu sync.Mutex
	var readings []reading
	clock := func() time.Time {
		text, _ := os.ReadFile(filepath.Join(dir, "clock"))
		shift, _ := strconv.ParseInt(string(text), 10, 64)
		at := outside()
		now := time.Now().Add(time.Duration(shift) * time.Second)
		mu.Lock()
		defer mu.Unlock()
		readings = append(readings, reading{now.UnixMilli(), at})
		return now
	}
	h, err := history.Open(ctx, filepath.Join(dir, "inbox"), history.WithClock(clock), history.WithEngine(engine.WithClock(clock)))
	if err != nil {
		return err
	}
	if _, err := h.Recover(ctx, again); err != nil {
		return err
	}
	for {
		mu.Lock()
		readings = readings[:0]
		mu.Unlock()
		var first, last int64
		r, row, err := h.Claim(ctx, history.Supervised(), history.With(func(_ *history.Tx, row *history.RunRow) error {
			last = outside()
			mu.Lock()
			defer mu.Unlock()
			for _, x := range readings {
				if first = x.outside; x.set == row.StartedAt.UnixMilli() {
					break
				}
			}
			return nil
		}))
		switch {
		case errors.Is(err, history.ErrNoneReady), errors.Is(err, engine.ErrBusy):
			time.Sleep(10 * time.Millisecond) // ClaimWait waits by the clock of the system
			continue
		case err != nil:
			return err
		}
		if _, err := fmt.Fprintf(log, "%d %d %d %s\n", first, last, outside(), row.ID); err != nil {
			return err
		}
		if err := r.End(ctx, history.End{Status: history.Completed}); err != nil && !errors.Is(err, engine.ErrBusy) {
			return err
		}
		r.Leave()
	}
}

// joinWorker works on the runs of TestJoins, until none is ready. A run that joins
// logs how many of its group have not ended.
func joinWorker(dir string, log *os.File) error {
	h, err := history.Open(ctx, filepath.Join(dir, "inbox"))
	if err != nil {
		return err
	}
	return h.Work(ctx, history.WorkOptions{Recover: again}, func(ctx context.Context, r *history.Run) (json.RawMessage, error) {
		row, err := r.Row(ctx)
		if err != nil {
			return nil, err
		}
		open := 0
		if job, _ := history.JobOf(&row); job.AfterGroup != "" {
			for other, err := range h.Runs(ctx, history.Query{}) {
				if err != nil {
					return nil, err
				}
				if of, _ := history.JobOf(&other); of.Group == job.AfterGroup && !other.Ended() {
					open++
				}
			}
		}
		_, err = fmt.Fprintf(log, "%s %d %d\n", r.ID(), r.Attempt(), open)
		return nil, err
	})
}
