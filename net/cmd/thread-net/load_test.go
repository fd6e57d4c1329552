//go:build !windows

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	opener "thread/net/servers"
)

// pusher pushes one event after the other, through whatever happens to the server.
type pusher struct {
	name  string
	keyed bool // what may be stored is pushed again, with the same dedupe key
	n     atomic.Int64
	acked map[string]bool
	maybe map[string]bool
	over  chan struct{} // it has ended

	longest time.Duration // that a push took whose outcome is unknown
}

// drained waits until nothing is left to settle, for as long as something is settled.
func (h *host) drained() {
	h.t.Helper()
	var before []string
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		info := h.run("info", "--json")
		if strings.Contains(info, `"pending_count": 0`) {
			return
		}
		if now := lastAcked.FindAllString(info, -1); !slices.Equal(now, before) {
			before, deadline = now, time.Now().Add(patience)
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("not everything is settled:\n%s", info)
		}
	}
}

var lastAcked = regexp.MustCompile(`"last_acked_id": \d+`)

func (p *pusher) run(ctx context.Context, th *engine.Thread) error {
	for i := 0; ctx.Err() == nil; i++ {
		content := fmt.Sprint(p.name, i)
		d := event.Draft{Source: "s", Type: "t", Content: content}
		if p.keyed {
			d.DedupeKey = content
		}
		for {
			// The end comes between two pushes.
			begun := time.Now()
			limited, cancel := context.WithTimeout(context.Background(), patience)
			_, err := th.Push(limited, d)
			cancel()
			if errors.Is(err, engine.ErrUnknownOutcome) {
				p.longest = max(p.longest, time.Since(begun))
			}
			switch {
			case err == nil:
				p.acked[content] = true
				p.n.Add(1)
			case errors.Is(err, engine.ErrUnknownOutcome) && !p.keyed:
				p.maybe[content] = true
			case ctx.Err() != nil:
				if errors.Is(err, engine.ErrUnknownOutcome) {
					p.maybe[content] = true
				}
				return nil
			case errors.Is(err, context.DeadlineExceeded):
				return err
			default:
				time.Sleep(10 * time.Millisecond) // nothing answers: not too often
				continue
			}
			break
		}
	}
	return nil
}

// reach waits until every pusher has n more events confirmed.
func reach(t *testing.T, list []*pusher, n int64) {
	t.Helper()
	for _, p := range list {
		from, deadline := p.n.Load(), time.Now().Add(patience)
		for p.n.Load() < from+n {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d pushes in %v", p.name, p.n.Load()-from, patience)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// load is what continues while servers are killed: four processes push, as far as the server
// can tell, and two hosts consume.
type load struct {
	*host
	pushers     []*pusher
	log         string // the ids that were delivered
	group       sync.WaitGroup
	stopPushing context.CancelFunc
	stop        context.CancelFunc
}

func newLoad(h *host) *load {
	h.t.Helper()
	h.run("subscribe", "--consumer", "w", "--pull")
	l := &load{host: h, log: filepath.Join(h.t.TempDir(), "log")}
	var pushing, consuming context.Context
	pushing, l.stopPushing = context.WithCancel(context.Background())
	consuming, l.stop = context.WithCancel(context.Background())
	h.t.Cleanup(func() {
		l.stopPushing()
		l.stop()
		l.group.Wait()
	})
	for i := range 4 {
		p := &pusher{name: fmt.Sprintf("p%d.", i), keyed: i%2 == 1, acked: map[string]bool{}, maybe: map[string]bool{}, over: make(chan struct{})}
		l.pushers = append(l.pushers, p)
		th, err := opener.Servers{}.Open(h.url, nil)
		if err != nil {
			h.t.Fatal(err)
		}
		l.group.Go(func() {
			defer close(p.over)
			defer th.Close()
			if err := p.run(pushing, th); err != nil {
				h.t.Errorf("%s: %v", p.name, err)
			}
		})
	}
	// One whose server is away ends, and is started again.
	for range 2 {
		l.group.Go(func() {
			for consuming.Err() == nil {
				cmd := exec.CommandContext(consuming, "thread-net", "consume", "--consumer", "w", "--follow", "--batch", "100", "--",
					"sh", "-c", `sed 's/^{"id":\([0-9]*\),.*/\1/' >>`+l.log)
				cmd.Env = append(os.Environ(), "THREAD_DIR="+h.url)
				cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, patience
				_ = cmd.Run()
			}
		})
	}
	return l
}

// verify ends the load. What was confirmed is there once, all of it is delivered, and the
// thread is sound. It returns figures.
func (l *load) verify() string {
	t := l.t
	t.Helper()
	l.stopPushing()
	var e struct {
		ID              int64
		Source, Content string
	}
	for _, p := range l.pushers {
		<-p.over // every push of it ends in time
	}
	seen, last := map[string]int{}, int64(0)
	for line := range strings.Lines(l.run("peek", "--last-event-id", "0", "--limit", "10000000")) {
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.ID != last+1 {
			t.Fatalf("after event %d: %s: %v", last, line, err)
		}
		last = e.ID
		if e.Source == "s" { // else no pusher has pushed it
			seen[e.Content]++
		}
	}
	acked, maybe, longest := 0, 0, time.Duration(0)
	for _, p := range l.pushers {
		longest = max(longest, p.longest)
		for content := range p.acked {
			if acked++; seen[content] != 1 {
				t.Errorf("%s was confirmed, and is there %d times", content, seen[content])
			}
			delete(seen, content)
		}
		for content := range p.maybe {
			if maybe++; seen[content] > 1 {
				t.Errorf("%s is there %d times", content, seen[content])
			}
			delete(seen, content)
		}
	}
	if len(seen) > 0 {
		t.Errorf("nobody was told of %v", seen)
	}
	l.drained()
	l.stop()
	l.group.Wait()
	data, err := os.ReadFile(l.log)
	if err != nil {
		t.Fatal(err)
	}
	delivered := map[string]bool{}
	for id := range bytes.FieldsSeq(data) {
		delivered[string(id)] = true
	}
	if int64(len(delivered)) != last {
		t.Errorf("%d of %d events were delivered", len(delivered), last)
	}
	dir := filepath.Join(t.TempDir(), "copy")
	l.run("export", "--to", dir)
	if here, there := digestOf(t, l.run("check")), digestOf(t, program(t, "", "thread", "check", "--thread", dir)); here != there {
		t.Errorf("check says %s, and of a copy %s", here, there)
	}
	return fmt.Sprintf("%d events confirmed, %d unknown, the longest for %v, %d stored, %d deliveries",
		acked, maybe, longest.Round(time.Millisecond), last, len(bytes.Fields(data)))
}
