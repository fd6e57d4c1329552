package survive

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"thread/engine"
)

// TestSoak lets many processes push, pop, ack, subscribe, compact, back up, retain and
// prune one directory at once while some of them are killed at random moments. In the end
// every push that returned 0 is there once, those that were killed once or not at
// all, and everything else is in order. THREAD_SOAK=60s and
// THREAD_SOAK_PROCESSES=200 make it long and wide.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(cmpOr(os.Getenv("THREAD_SOAK"), "3s"))
	if err != nil {
		t.Fatal(err)
	}
	processes, err := strconv.Atoi(cmpOr(os.Getenv("THREAD_SOAK_PROCESSES"), "8"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "thread")
	thread(t, "", "init", dir)
	thread(t, "", "subscribe", "--thread", dir, "--consumer", "c", "--handler", "true")
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	s := &soak{dir: dir, backups: dir + ".backups", acked: map[string][]int64{}, seen: map[string][]int64{}}
	followed := make(chan error, 1)
	go func() { followed <- s.follow(th) }()
	end := time.Now().Add(length)
	var wg sync.WaitGroup
	for w := range processes {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for n := 0; time.Now().Before(end); n++ {
				if err := s.one(r, fmt.Sprintf("%d-%d", w, n)); err != nil {
					t.Errorf("process %d, step %d: %v", w, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	s.verify(t, th, followed)
	t.Logf("%d processes were run by %d at once, %d of them killed, %d found the thread busy, %d do not know; %d pushes were acknowledged, %d events followed",
		s.ran.Load(), processes, s.killed.Load(), s.busy.Load(), s.unknown.Load(), len(s.acked), s.last.Load())
	if len(s.acked) == 0 || s.killed.Load() == 0 {
		t.Error("nothing was tried")
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

type soak struct {
	dir, backups               string
	ran, killed, busy, unknown atomic.Int64

	mu     sync.Mutex
	acked  map[string][]int64 // ids that a push printed, by content
	newest int64              // of them

	// What follow has read.
	seen map[string][]int64
	last atomic.Int64
}

// one runs one command, and kills every fifth.
func (s *soak) one(r *rand.Rand, name string) error {
	args, stdin := s.choose(r, name)
	cmd := exec.Command(program, append(args, "--thread", s.dir)...)
	cmd.Env = environment()
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	s.ran.Add(1)
	if r.IntN(5) == 0 {
		kill := time.AfterFunc(time.Duration(r.IntN(12000))*time.Microsecond, func() { cmd.Process.Kill() })
		defer kill.Stop()
	}
	err := cmd.Wait()
	switch code := cmd.ProcessState.ExitCode(); {
	case code == -1:
		s.killed.Add(1)
		return nil
	case err == nil:
	case strings.HasPrefix(stderr.String(), "Error: thread is busy"), strings.HasPrefix(stderr.String(), `{"error":"thread is busy"`):
		s.busy.Add(1)
		return nil
	case strings.HasPrefix(stderr.String(), "Error: outcome unknown"):
		s.unknown.Add(1) // stored once or not at all, like a push that was killed
		return nil
	case code == 1 && strings.Contains(stderr.String(), "Error: consumer '"):
		return nil // another process (un)subscribed it, or it holds back a prune
	default:
		return fmt.Errorf("%q: exit %d: %s", args, code, stderr.String())
	}
	if args[0] == "push" {
		ids, err := numbers(stdout.String())
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.acked[name] = ids
		s.newest = max(s.newest, ids[len(ids)-1])
		s.mu.Unlock()
	}
	return nil
}

func (s *soak) choose(r *rand.Rand, name string) (args []string, stdin string) {
	switch n := r.IntN(20); {
	case n < 10:
		return []string{"push", "--source", "p", "--type", "one", "--content", name}, ""
	case n < 13:
		var b strings.Builder
		for range 1 + r.IntN(40) {
			fmt.Fprintf(&b, `{"source":"p","type":"batch","content":"%s"}`+"\n", name)
		}
		return []string{"push", "--batch"}, b.String()
	case n < 15:
		return []string{"pop", "--consumer", "c", "--last-event-id", strconv.FormatInt(max(0, s.newestAcked()-int64(r.IntN(400))), 10)}, ""
	case n < 16:
		return []string{"info", "--json"}, ""
	case n < 17:
		if r.IntN(2) == 0 {
			return []string{"subscribe", "--consumer", "x" + strconv.Itoa(r.IntN(4)), "--handler", "true", "--filter", "type = 'none'"}, ""
		}
		return []string{"unsubscribe", "--consumer", "x" + strconv.Itoa(r.IntN(4))}, ""
	case n < 18:
		return []string{"compact"}, ""
	case n < 19:
		return []string{"backup", s.backups, "--keep", "2"}, ""
	case r.IntN(2) == 0:
		return []string{"retain", "--max-events", s.keep(), "--force"}, ""
	}
	return []string{"prune", "--keep-last", s.keep(), "--force"}, ""
}

func numbers(text string) (ids []int64, err error) {
	for line := range strings.Lines(text) {
		id, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (s *soak) newestAcked() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// keep is how many events are kept: what was not followed yet, and more than are pushed
// until they are counted.
func (s *soak) keep() string { return strconv.FormatInt(s.newestAcked()-s.last.Load()+600, 10) }

// follow reads every event as it comes: each is there, after the one before.
func (s *soak) follow(t *engine.Thread) error {
	for e, err := range t.Follow(ctx, 0, "") {
		if err != nil {
			return err
		}
		if last := s.last.Swap(e.ID); e.ID != last+1 {
			return fmt.Errorf("event %d after %d", e.ID, last)
		}
		s.seen[e.Content] = append(s.seen[e.Content], e.ID)
		if e.Content == theEnd {
			return nil
		}
	}
	return nil
}

const theEnd = "the end"

// verify compares what was followed, the newest backup and the database with what the
// pushes were told.
func (s *soak) verify(t *testing.T, th *engine.Thread, followed <-chan error) {
	t.Helper()
	thread(t, "", "push", "--thread", s.dir, "--source", "p", "--type", "one", "--content", theEnd)
	if err := <-followed; err != nil {
		t.Error(err)
	}
	thread(t, "", "backup", "--thread", s.dir, s.backups)
	thread(t, "", "restore", s.backups, "--to", s.dir+".restored")
	for _, dir := range []string{s.dir, s.dir + ".restored"} {
		if err := faultless(dir); err != nil {
			t.Error(err)
		}
	}
	for name, ids := range s.acked {
		if fmt.Sprint(s.seen[name]) != fmt.Sprint(ids) {
			t.Errorf("push %s printed the ids %v, stored are %v", name, ids, s.seen[name])
		}
	}
	for name, ids := range s.seen {
		if ids[len(ids)-1]-ids[0] != int64(len(ids)-1) {
			t.Errorf("push %s is stored more than once or torn apart: %v", name, ids)
		}
	}
	previous := int64(0)
	for e, err := range th.Events(ctx, engine.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if previous != 0 && e.ID != previous+1 {
			t.Fatalf("event %d after %d", e.ID, previous)
		}
		previous = e.ID
	}
	info, err := th.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if last := s.last.Load(); info.EventCount != last || info.Newest != last || previous != last {
		t.Errorf("info counts %d events up to %d, followed were %d", info.EventCount, info.Newest, last)
	}
}
