package survive

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"thread/history"
)

// TestMirrorSoak lets writers of a history, workers, recovery, pruning and a mirror that
// follows continue at once, each of them killed at random moments. In the end every message
// that was acknowledged is there, no session has two active runs, no run has more
// attempts than it may, the tables are what the log says, and the mirror is what a new
// one is. THREAD_SOAK=60s makes it long.
func TestMirrorSoak(t *testing.T) {
	length, err := time.ParseDuration(cmpOr(os.Getenv("THREAD_SOAK"), "700ms"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "in box")
	s := &mirrorSoak{dir: dir, mirror: filepath.Join(t.TempDir(), "history.db")}
	thread(t, "", "init", dir)
	for i := range 4 {
		thread(t, "", "session", "start", "--thread", dir, "--id", fmt.Sprint("s", i))
	}
	end := time.Now().Add(length)
	more := func() bool { // a slow host is given time to try something at all
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		return now.Before(end) || now.Before(end.Add(time.Minute)) && (len(s.acked) == 0 || s.killed.Load() == 0)
	}
	var wg sync.WaitGroup
	lane := func(n uint64, args func(r *rand.Rand, name string) []string, alive time.Duration) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(n, 1))
			for i := 0; more(); i++ {
				if err := s.one(r, args(r, fmt.Sprintf("%d-%d", n, i)), alive); err != nil {
					t.Errorf("lane %d, step %d: %v", n, i, err)
					return
				}
			}
		})
	}
	for n := range uint64(3) {
		lane(n, s.write, 20*time.Millisecond)
	}
	lane(10, func(*rand.Rand, string) []string {
		return []string{"run", "work", "--drain", "--strategy", "requeue_all", "--", "true"}
	}, 60*time.Millisecond)
	lane(11, func(*rand.Rand, string) []string {
		return []string{"history", "mirror", "--to", s.mirror, "--follow"}
	}, 150*time.Millisecond)
	lane(12, func(r *rand.Rand, _ string) []string {
		if r.IntN(4) == 0 {
			return []string{"history", "prune", "--keep-last", "20"}
		}
		return []string{"run", "recover", "--strategy", "requeue_all"}
	}, 40*time.Millisecond)
	wg.Wait()
	s.verify(t)
	t.Logf("%d processes were run, %d of them killed; %d messages were acknowledged", s.ran.Load(), s.killed.Load(), len(s.acked))
	if len(s.acked) == 0 || s.killed.Load() == 0 {
		t.Error("nothing was tried")
	}
}

type mirrorSoak struct {
	dir, mirror string
	ran, killed atomic.Int64

	mu    sync.Mutex
	acked []string // ids of messages
}

func (s *mirrorSoak) write(r *rand.Rand, name string) []string {
	session := fmt.Sprint("s", r.IntN(4))
	switch r.IntN(4) {
	case 0:
		return []string{"run", "enqueue", "--session", session, "--id", "r" + name}
	case 1:
		return []string{"run", "exec", "--id", "x" + name, "--", "true"}
	}
	return []string{"message", "add", "--session", session, "--role", "user", "--content", "text " + name, "--id", "m" + name}
}

// one runs one command, and kills every third, and those that come to no end, after as
// long as alive.
func (s *mirrorSoak) one(r *rand.Rand, args []string, alive time.Duration) error {
	cmd := exec.Command(program, append(args[:2:2], append([]string{"--thread", s.dir}, args[2:]...)...)...)
	cmd.Env = environment()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // for what a command that lives on has open
	if err := cmd.Start(); err != nil {
		return err
	}
	s.ran.Add(1)
	if r.IntN(3) == 0 || args[len(args)-1] == "--follow" {
		kill := time.AfterFunc(time.Duration(r.Int64N(int64(alive))), func() { cmd.Process.Kill() })
		defer kill.Stop()
	}
	err := cmd.Wait()
	switch code := cmd.ProcessState.ExitCode(); {
	case code == -1:
		s.killed.Add(1)
	case err == nil && args[0] == "message":
		s.mu.Lock()
		s.acked = append(s.acked, args[len(args)-1])
		s.mu.Unlock()
	case err == nil, strings.HasPrefix(out.String(), "Error: thread is busy"), strings.HasPrefix(out.String(), "Error: outcome unknown"):
	default:
		return fmt.Errorf("%q: exit %d: %s", args, code, out.String())
	}
	return nil
}

func (s *mirrorSoak) verify(t *testing.T) {
	t.Helper()
	thread(t, "", "run", "recover", "--thread", s.dir)
	thread(t, "", "history", "mirror", "--thread", s.dir, "--to", s.mirror)
	if err := mirrorIsNew(t, s.dir, s.mirror); err != nil {
		t.Error(err)
	}
	k, h, err := keptIn(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range s.acked {
		if err := h.Get(ctx, new(history.MessageRow), id); err != nil {
			t.Errorf("an acknowledged message: %v", err)
		}
	}
	active := map[string]string{}
	for r, err := range h.Runs(ctx, history.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Active() && r.SessionID != "" {
			if active[r.SessionID] != "" {
				t.Errorf("the session %s has the active runs %s and %s", r.SessionID, r.ID, active[r.SessionID])
			}
			active[r.SessionID] = r.ID
		}
		if r.Attempt > 2 {
			t.Errorf("run %s has had %d attempts", r.ID, r.Attempt)
		}
	}
	if _, err := h.Rebuild(ctx); err != nil {
		t.Fatal(err)
	}
	if again, _, err := keptIn(s.dir); err != nil || again.tables != k.tables {
		t.Errorf("the log says other tables than there are: %v %s", err, differing(k.tables, again.tables))
	}
	if err := faultless(h.Dir()); err != nil {
		t.Error(err)
	}
}
