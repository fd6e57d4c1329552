//go:build linux

package serve

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
)

// TestSoak pushes to several threads while handlers crash, hang and leave
// processes behind, and the server is killed and started again; then it looks
// whether every event was delivered to every consumer it matches, in order, with
// no two handlers of a consumer at once and no more than the limit under one
// server. THREAD_SOAK is the time it takes.
func TestSoak(t *testing.T) {
	length := 3 * time.Second
	if v := os.Getenv("THREAD_SOAK"); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	b := newBench(t)
	threads := []*engine.Thread{b.t}
	for i := range 2 {
		more, err := engine.Init(b.path(fmt.Sprint("thread", i)))
		if err != nil {
			t.Fatal(err)
		}
		threads = append(threads, more)
	}
	type target struct {
		t        *engine.Thread
		consumer string
		source   string
	}
	var targets []target
	for i, th := range threads {
		for _, source := range []string{"a", "b", "c"} {
			c := fmt.Sprintf("%s%d", source, i)
			where := "source = '" + source + "'"
			if err := th.Subscribe(t.Context(), engine.Subscription{Consumer: c, Handler: `exec "$T" toil`, Filter: &where, Timeout: 2 * time.Second}); err != nil {
				t.Fatal(err)
			}
			targets = append(targets, target{th, c, source})
		}
	}

	var server *exec.Cmd
	generation := 0
	start := func() {
		generation++
		server = exec.Command(os.Getenv("T"), "serve")
		for _, th := range threads {
			server.Args = append(server.Args, th.Dir())
		}
		server.Env = append(os.Environ(), fmt.Sprint("SERVER=", generation))
		server.Stderr = os.Stderr
		if !testing.Verbose() {
			server.Stderr = nil
		}
		out, err := server.StdoutPipe()
		if err == nil {
			err = server.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("the server does not start: %q %v", line, err)
		}
	}
	pushed := map[string][]int64{} // consumer → ids
	end := time.Now().Add(length)
	nextKill := time.Now()
	for time.Now().Before(end) {
		if time.Now().After(nextKill) {
			if server != nil {
				server.Process.Kill()
				server.Wait()
			}
			if rand.IntN(3) > 0 { // sometimes no process serves for a while
				start()
			} else {
				server = nil
			}
			nextKill = time.Now().Add(time.Duration(200+rand.IntN(900)) * time.Millisecond)
		}
		th := threads[rand.IntN(len(threads))]
		source := string(rune('a' + rand.IntN(4))) // d matches no process
		e, err := th.Push(t.Context(), event.Draft{Source: source, Type: "m", Content: "x"})
		if err == nil {
			err = dispatch.Wake(t.Context(), th, source)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range targets {
			if g.t == th && g.source == source {
				pushed[g.consumer] = append(pushed[g.consumer], e.ID)
			}
		}
		time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond) // the pace, nothing waits for it
	}
	// The last kill comes after the last push.
	if server != nil {
		server.Process.Kill()
		server.Wait()
	}
	start()
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGTERM)
		server.Wait()
	})
	for _, g := range targets {
		b.until("handled: "+g.consumer+" in "+filepath.Base(g.t.Dir()), func() bool {
			d, err := g.t.DueFor(context.Background(), g.consumer, 0)
			if err != nil {
				t.Fatal(err)
			}
			st, err := dispatch.Status(g.t, g.consumer)
			if err != nil {
				t.Fatal(err)
			}
			if st.Stalled { // five failures in a row: the next push starts afresh
				dispatch.Wake(context.Background(), g.t, g.source)
			}
			return d.First == 0
		})
	}
	if text, err := os.ReadFile(b.path("violations")); err == nil {
		t.Errorf("violations:\n%s", text)
	}
	delivered := map[string][]int64{}
	for _, line := range b.lines("delivered") {
		var consumer string
		var id int64
		if _, err := fmt.Sscanf(line, "%s %d", &consumer, &id); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		// A repetition after a crash is not a delivery out of order: what counts is
		// when each event came first.
		if list := delivered[consumer]; len(list) == 0 || id > list[len(list)-1] {
			delivered[consumer] = append(list, id)
		}
	}
	total := 0
	for _, g := range targets {
		want, got := fmt.Sprint(pushed[g.consumer]), fmt.Sprint(delivered[g.consumer])
		if want != got {
			t.Errorf("%s: delivered in order\n%s\npushed\n%s", g.consumer, got, want)
		}
		total += len(pushed[g.consumer])
	}
	t.Logf("%d events, %d servers, %d runs under them", total, generation, len(b.lines("served")))
	// In the few seconds of the quick run a slow machine may not get that far.
	long := os.Getenv("THREAD_SOAK") != ""
	if total == 0 || long && (generation < 2 || len(b.lines("served")) < 2 || strings.TrimSpace(b.lines("served")[0]) == "") {
		t.Error("the soak did not do what it is for")
	}
}
