//go:build linux

package survive

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTwoAtOnce kills what runs commands, at random moments, as often as THREAD_KILLS says
// for each way of running them and each kind of command. Each command holds a lock of its key
// for as long as any process of it lives. Commands of one key or session that overlap: none;
// dead letters that a kill alone has made: none; runs that are running after the next start:
// none.
func TestTwoAtOnce(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv("THREAD_KILLS"))
	if err != nil {
		t.Skip("THREAD_KILLS says how often")
	}
	for _, shell := range []string{"dash", "bash"} {
		for name, ends := range map[string]string{"exec": "exec sleep $s", "child": "sleep $s; :", "grandchild": "(sleep $s; :); :"} {
			for _, way := range ways {
				t.Run(fmt.Sprint(shell, "/", name, "/", way.name), func(t *testing.T) {
					if _, err := exec.LookPath(shell); err != nil {
						t.Skip(err)
					}
					k := newKills(t, shell, ends)
					way.play(k, (kills+5)/6)
					k.judge()
				})
			}
		}
	}
}

var ways = []struct {
	name string
	play func(k *kills, n int)
}{
	{"consume", func(k *kills, n int) {
		k.thread("", "subscribe", "--thread", k.dir, "--consumer", "c", "--handler", "true")
		k.restarted(n, k.push, "consume", "--thread", k.dir, "-c", "c", "--follow", "--parallel", "3", "--key", "source", "--max-attempts", "100000",
			"--backoff", "1ms", "--backoff-factor", "1", "--", k.shell, k.worker)
		k.calm()
		k.thread("", "consume", "--thread", k.dir, "-c", "c", "--parallel", "3", "--key", "source", "--max-attempts", "100000", "--backoff", "1ms",
			"--backoff-factor", "1", "--", k.shell, k.worker)
	}},
	{"consume in a handler", func(k *kills, n int) { k.handlers(n, "exec ", "") }},
	{"consume in a handler that hides its exit", func(k *kills, n int) { k.handlers(n, "", "; true") }},
	{"run work", func(k *kills, n int) {
		work := []string{"run", "work", "--thread", k.dir, "--strategy", "requeue_all", "--max-attempts", "1000"}
		k.restarted(n, k.enqueue, append(work, "--parallel", "2", "--", k.shell, k.worker)...)
		k.calm()
		k.thread("", append(work, "--drain", "--", k.shell, k.worker)...)
	}},
	{"serve --work", func(k *kills, n int) {
		k.restartedAll(n, k.enqueue, "run\x00work", "serve", "--thread", k.dir, "--drain", "100ms", "--work", k.shell+" "+k.worker)
		k.calm()
		if err := awaitAll(k.mark(), runLimit); err != nil { // workers live on when their server is killed
			k.Error(err)
		}
		k.thread("", "run", "work", "--thread", k.dir, "--drain", "--", k.shell, k.worker)
	}},
	{"outbox relay", func(k *kills, n int) {
		k.thread("", "outbox", "config", "--thread", k.dir, "--max-attempts", "1000")
		k.restarted(n, k.add, "outbox", "relay", "--thread", k.dir, "--", k.shell, k.worker)
		k.calm()
		k.thread("", "outbox", "relay", "--thread", k.dir, "--once", "--", k.shell, k.worker)
	}},
}

type kills struct {
	*testing.T
	base, dir, shell, worker string
	count                    int
	stderr                   *bytes.Buffer // of what is killed
}

func newKills(t *testing.T, shell, ends string) *kills {
	k := &kills{T: t, base: t.TempDir(), shell: shell, stderr: new(bytes.Buffer)}
	k.dir, k.worker = filepath.Join(k.base, "t"), filepath.Join(k.base, "worker.sh")
	script := `key=${THREAD_EVENT_KEY:-${THREAD_SESSION_ID:-relay}}
exec 9>>"$D/lock.$key"
flock -n 9 || echo "$key $(cat /proc/*/comm 2>/dev/null | grep -c sleep)" >> "$D/overlaps"
echo "$key" >> "$D/begun"
s=0.05
[ ! -e "$D/killing" ] || [ $(($$ % 3)) = 0 ] || s=5 # longer than any pause before a second attempt
` + ends + "\n"
	if err := os.WriteFile(k.worker, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(k.base, "killing"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k.thread("", "init", k.dir)
	for s := range 3 {
		k.thread("", "session", "start", "--thread", k.dir, "--id", fmt.Sprint("s", s))
	}
	t.Cleanup(func() {
		if err := awaitAll(k.mark(), 30*time.Second); err != nil {
			t.Error(err)
		}
	})
	return k
}

// mark is in the environment of all processes of the test.
func (k *kills) mark() string { return "D=" + k.base }

func (k *kills) command(dispatch string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), k.mark(), "THREAD_DISPATCH="+dispatch)
	return cmd
}

func (k *kills) thread(stdin string, args ...string) string {
	k.Helper()
	cmd := k.command("none", args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		k.Fatalf("thread %q: %v: %s", args, err, stderr.String())
	}
	return string(out)
}

func (k *kills) push(dispatch string) {
	k.count++
	cmd := k.command(dispatch, "push", "--thread", k.dir, "--source", fmt.Sprint("s", k.count%3), "--type", "message", "--content", "x")
	if out, err := cmd.CombinedOutput(); err != nil {
		k.Fatalf("%v: %s", err, out)
	}
}

func (k *kills) enqueue(string) {
	k.count++
	k.thread("", "run", "enqueue", "--thread", k.dir, "--session", fmt.Sprint("s", k.count%3))
}

func (k *kills) add(string) {
	k.count++
	k.thread("", "outbox", "add", "--thread", k.dir, "--message", fmt.Sprintf(`{"event_id":"evt_%d","event_type":"comment.replied","thread_id":101,
		"comment_id":%d,"actor_user_id":12,"target_user_id":5,"target_user_type":"agent","content_preview":"x"}`, k.count, k.count))
}

func (k *kills) begun() int {
	text, _ := os.ReadFile(filepath.Join(k.base, "begun"))
	return bytes.Count(text, []byte{'\n'})
}

// awaitBegun returns when a command has begun since there were that many. idle is called now and
// then when no process is left.
func (k *kills) awaitBegun(before int, idle func()) {
	k.Helper()
	for i, end := 0, time.Now().Add(runLimit); k.begun() <= before; i++ {
		if i%1000 == 999 && len(k.processes("")) == 0 {
			idle()
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(filepath.Join(k.dir, "logs", "thread.log"))
			k.Fatalf("no command begins: %v\n%s\n%s\n%s", k.processes(""), k.stderr, text[max(0, len(text)-3000):], k.thread("", "info", "--thread", k.dir))
		}
		time.Sleep(time.Millisecond) // polls a file
	}
}

// moment is when the kill comes, once a command has begun.
func moment() { time.Sleep(rand.N(60 * time.Millisecond)) }

// restarted starts the program, gives it something to do and kills it, n times.
func (k *kills) restarted(n int, todo func(dispatch string), args ...string) {
	k.restartedAll(n, todo, "", args...)
}

// restartedAll also kills one of the processes at times whose command line has the words.
func (k *kills) restartedAll(n int, todo func(dispatch string), words string, args ...string) {
	for range n {
		for range 2 {
			todo("none")
		}
		before := k.begun()
		cmd := k.command("none", args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			k.Fatal(err)
		}
		k.stderr = &stderr
		k.awaitBegun(before, func() {})
		moment()
		if others := k.processes(words); words != "" && len(others) > 0 && rand.N(2) == 0 {
			_ = unix.Kill(others[0], unix.SIGKILL)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if left := strings.TrimSpace(stderr.String()); strings.Contains(left, "panic") {
			k.Fatal(left)
		}
	}
}

// handlers pushes, and kills the consume of the handler, n times.
func (k *kills) handlers(n int, before, after string) {
	k.thread("", "subscribe", "--thread", k.dir, "--consumer", "c", "--timeout", "1m", "--handler", fmt.Sprintf(
		"%s%s consume --parallel 3 --key source --max-attempts 100000 --backoff 1ms --backoff-factor 1 -- %s %s%s", before, program, k.shell, k.worker, after))
	for range n {
		begun := k.begun()
		k.push("spawn")
		k.awaitBegun(begun, func() { k.push("spawn") }) // five failures in a row stop a handler until the next push
		moment()
		for _, pid := range k.processes("\x00consume\x00--parallel") {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	k.calm()
	if err := awaitAll(k.mark(), 2*runLimit); err != nil {
		k.Error(err)
	}
	k.push("spawn")
	if err := awaitAll(k.mark(), 2*runLimit); err != nil {
		k.Error(err)
	}
}

// calm ends the time of long commands.
func (k *kills) calm() {
	if err := os.Remove(filepath.Join(k.base, "killing")); err != nil {
		k.Fatal(err)
	}
}

// processes returns the processes of the test whose command line has the words.
func (k *kills) processes(words string) (pids []int) {
	for _, pid := range marked(k.mark()) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(line, []byte(words)) && !bytes.HasPrefix(line, []byte("/bin/sh")) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

func (k *kills) judge() {
	k.Helper()
	if text, err := os.ReadFile(filepath.Join(k.base, "overlaps")); err == nil {
		k.Errorf("%d commands began beside another one of their key: %.300s", bytes.Count(text, []byte{'\n'}), text)
	}
	if out := k.thread("", "dead", "list", "--thread", k.dir); out != "" {
		k.Errorf("dead letters: %.300s", out)
	}
	if out := k.thread("", "run", "list", "--thread", k.dir, "--status", "running"); out != "" {
		k.Errorf("runs are running: %.600s", out)
	}
	k.Logf("%d commands", k.begun())
}
