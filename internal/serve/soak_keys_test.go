//go:build linux

package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/dispatch"
	"thread/lock"
)

// toilKey is the command of TestSoakKeys, and its worker: it notes the beginning and the
// end of each event, and now and then it crashes, fails or leaves a process behind.
func toilKey(worker bool) error {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil //nolint:nilerr // the end
		}
		var e struct {
			ID     int64  `json:"id"`
			Source string `json:"source"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		ok, err := toilOnce(e.ID, e.Source)
		switch {
		case err != nil:
			return err
		case worker && ok:
			fmt.Printf("{\"id\":%d,\"ok\":true}\n", e.ID)
		case worker:
			fmt.Printf("{\"id\":%d,\"error\":\"no\"}\n", e.ID)
		case !ok:
			os.Exit(1)
		default:
			return nil
		}
	}
}

func toilOnce(id int64, key string) (ok bool, err error) {
	dir := os.Getenv("D")
	consumer := filepath.Base(os.Getenv("THREAD_DIR")) + "-" + os.Getenv("THREAD_CONSUMER")
	note := func(name, what string) error {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = fmt.Fprintf(f, "%s %d %s\n", key, id, what)
		return err
	}
	alone, err := lock.Try(filepath.Join(dir, "alone-"+consumer+"-"+key), lock.Exclusive)
	if err != nil {
		return false, note("violations", consumer+" is not alone with its key")
	}
	defer alone.Close()
	if err := note("did-"+consumer, "begin"); err != nil {
		return false, err
	}
	switch rand.IntN(40) {
	case 0:
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case 1:
		return false, nil
	case 2:
		exec.Command("sleep", "0.3").Start()
	}
	return true, note("did-"+consumer, "ok")
}

// TestSoakKeys pushes conversations to consumers that have deliveries out side by side,
// as commands and as workers, while server, supervisors, consume and its commands are
// killed. Then it looks whether every event was delivered, each key's in order
// and one at a time, and what was delivered again was out when something was killed.
func TestSoakKeys(t *testing.T) {
	length := 400 * time.Millisecond
	if v := os.Getenv("THREAD_SOAK"); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	const parallel, keys = 6, 10
	b := newBench(t)
	other, err := engine.Init(b.path("other"))
	if err != nil {
		t.Fatal(err)
	}
	threads := []*engine.Thread{b.t, other}
	consumers := []string{"commands", "worker"}
	for _, th := range threads {
		for _, c := range consumers {
			handler := fmt.Sprintf(`exec "$T" consume %d source %s "$T" toil-%s`, parallel, c, c)
			if err := th.Subscribe(t.Context(), engine.Subscription{Consumer: c, Handler: handler}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var server *exec.Cmd
	start := func() {
		server = exec.Command(os.Getenv("T"), "serve", b.t.Dir(), other.Dir())
		if testing.Verbose() {
			server.Stderr = os.Stderr
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
	stop := func() {
		if server != nil {
			server.Process.Kill()
			server.Wait()
			server = nil
		}
	}
	kills := map[string]int{}
	kill := func() {
		switch rand.IntN(4) {
		case 0:
			stop()
			kills["serve"]++
			if rand.IntN(3) > 0 { // sometimes no process serves for a while
				start()
			}
		default:
			if verb := b.killOne("supervise", "consume", "toil-worker", "toil-commands"); verb != "" {
				kills[verb]++
			}
		}
	}
	pushed := map[string][]int64{} // thread and key → ids
	start()
	nextKill := time.Now().Add(length / 4) // something runs by then, mostly
	// On a busy host, too, both threads and most keys get something.
	const least = 40
	for n, end := 0, time.Now().Add(length); n < least || time.Now().Before(end); n++ {
		if time.Now().After(nextKill) {
			kill()
			nextKill = time.Now().Add(time.Duration(50+rand.IntN(300)) * time.Millisecond)
		}
		th := threads[rand.IntN(len(threads))]
		key := fmt.Sprint("k", rand.IntN(keys))
		id := b.pushTo(th, key, "x")
		name := filepath.Base(th.Dir()) + " " + key
		pushed[name] = append(pushed[name], id)
		time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond) // the pace, nothing waits for it
	}
	stop() // the last kill comes after the last push
	kills["serve"]++
	start()
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGTERM)
		server.Wait()
	})
	for _, th := range threads {
		for _, c := range consumers {
			b.until("handled: "+c+" in "+th.Dir(), func() bool {
				d, err := th.DueFor(context.Background(), c, 0)
				if err != nil {
					t.Fatal(err)
				}
				st, err := dispatch.Status(th, c)
				if err != nil {
					t.Fatal(err)
				}
				if st.Stalled { // five failures in a row: the next push starts afresh
					dispatch.Wake(context.Background(), th, c)
				}
				return d.First == 0
			})
		}
	}
	if text, err := os.ReadFile(b.path("violations")); err == nil {
		t.Errorf("violations:\n%s", text)
	}
	total, begun, again := 0, 0, 0
	for _, th := range threads {
		for _, c := range consumers {
			name := filepath.Base(th.Dir())
			done := map[string][]int64{} // key → ids that went well, in order
			for _, line := range b.lines("did-" + name + "-" + c) {
				fields := strings.Fields(line)
				id, err := strconv.ParseInt(fields[1], 10, 64)
				if err != nil || len(fields) != 3 {
					t.Fatalf("%q", line)
				}
				key := fields[0]
				want, of := done[key], pushed[name+" "+key]
				switch {
				case fields[2] == "begin" && len(want) < len(of) && of[len(want)] == id:
					begun++
				case fields[2] == "begin" && len(want) > 0 && want[len(want)-1] == id:
					begun++ // its end was known to no process
				case fields[2] == "begin":
					t.Fatalf("%s in %s, %s: event %d begins after %v, of %v", c, name, key, id, want, of)
				case len(want) > 0 && want[len(want)-1] == id:
					again++
				default:
					done[key] = append(want, id)
				}
			}
			for k := range keys {
				key := fmt.Sprint("k", k)
				if want, got := fmt.Sprint(pushed[name+" "+key]), fmt.Sprint(done[key]); want != got {
					t.Errorf("%s in %s, %s: done %s, pushed %s", c, name, key, got, want)
				}
				total += len(done[key])
			}
		}
	}
	killed := 0
	for _, n := range kills {
		killed += n
	}
	// At a kill each of the four has that many out, and as many results that are not stored.
	if again > killed*parallel*2 {
		t.Errorf("%d events went well twice, with %d kills", again, killed)
	}
	t.Logf("%d deliveries, %d begun, %d went well twice, killed: %v", total, begun, again, kills)
	if total == 0 || killed == 0 {
		t.Error("the soak did not do what it is for")
	}
}

// killOne kills one of the processes with one of the verbs, and returns its verb, "" for
// none.
func (b *bench) killOne(verbs ...string) string {
	list := b.others()
	for _, i := range rand.Perm(len(list)) {
		proc := filepath.Dir(list[i])
		line, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		args := strings.Split(string(line), "\x00")
		pid, err := strconv.Atoi(filepath.Base(proc))
		if len(args) < 2 || err != nil {
			continue
		}
		for _, verb := range verbs {
			if args[1] == verb && syscall.Kill(pid, syscall.SIGKILL) == nil {
				return verb
			}
		}
	}
	return ""
}
