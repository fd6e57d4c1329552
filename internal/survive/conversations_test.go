//go:build unix

package survive

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
)

const (
	conversations = 12
	ofRound       = 60 // events that are pushed
)

// TestConversations has thread consume --parallel work through events that are pushed
// meanwhile, and kills it again and again: the program alone, so that its handlers end
// what they have, or all of them at once; handlers kill themselves, too. By their log,
// each key comes in order and one at a time, nothing is left out, what was settled when a
// kill came is not redelivered, and of the rest only what had not ended well, or was out.
// THREAD_SOAK=60s makes it long.
func TestConversations(t *testing.T) {
	length, err := time.ParseDuration(cmpOr(os.Getenv("THREAD_SOAK"), "200ms"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "thread")
	thread(t, "", "init", dir)
	thread(t, "", "subscribe", "--thread", dir, "--consumer", "c", "--handler", "true", "--filter", "type = 'message'")
	c := &conversed{dir: dir, log: filepath.Join(t.TempDir(), "log"), ids: map[string][]int64{}, at: map[string]*conversation{}, settled: map[int64]bool{}}
	if err := os.WriteFile(c.log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for end := time.Now().Add(length); c.round < 2 || time.Now().Before(end); {
		c.consume(t, r, true)
	}
	c.consume(t, r, false)
	for key, ids := range c.ids {
		if at := c.at[key]; at == nil || at.id != ids[len(ids)-1] || at.how != "ok" {
			t.Errorf("key %s: events up to %d were pushed, and %+v is the last that came", key, ids[len(ids)-1], at)
		}
	}
	if c.info.LastAcked != c.head || c.info.Settled != 0 || c.info.Out != 0 || c.info.Dead != 0 {
		t.Errorf("in the end last_acked_id is %d of %d, %+v, %d dead", c.info.LastAcked, c.head, c.info.ParallelState, c.info.Dead)
	}
	t.Logf("%d events in %d rounds, %d came again, %d of them after they had ended well; %d were settled above last_acked_id at a kill", c.head, c.round, c.again, c.unstored, c.above)
	if c.again == 0 {
		t.Error("nothing was tried")
	}
}

type conversed struct {
	dir, log string
	offset   int64
	round    int

	head    int64
	ids     map[string][]int64 // that were pushed, by key
	at      map[string]*conversation
	settled map[int64]bool // when a kill came
	info    engine.ConsumerInfo

	again, unstored int   // deliveries of what had come before; of them those that had ended well
	above           int64 // settled above last_acked_id at kills
}

// conversation is the latest that was heard of a key.
type conversation struct {
	id    int64
	how   string // "out", "ok", "no" or "killed"
	round int
}

// consume pushes some events and lets them be consumed, until a kill at a random moment or
// to the end.
func (c *conversed) consume(t *testing.T, r *rand.Rand, kill bool) {
	t.Helper()
	c.round++
	args := []string{"consume", "--thread", c.dir, "--consumer", "c", "--parallel", strconv.Itoa(1 + r.IntN(6)), "--key", []string{"source", "$.k"}[r.IntN(2)],
		"--max-attempts", "1000000", "--backoff", "1ms", "--backoff-factor", "1", "--window", []string{"8", "10000"}[r.IntN(2)]}
	if r.IntN(8) > 0 {
		args = append(args, "--worker")
	}
	if kill {
		args = append(args, "--follow")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(args, "--", self)...)
	cmd.Env = append(environment(), handlerLog+"="+c.log)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	over, held, err := os.Pipe() // everybody of the round holds it
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	var stderr strings.Builder
	cmd.Stderr, cmd.ExtraFiles = &stderr, []*os.File{held}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	held.Close()
	if c.head-c.info.LastAcked < 10*ofRound { // or the end of a long soak would be long, too
		c.push(t, r)
	}
	if kill { // it is not waited for before that: its number is its own until then
		c.hears(t, 1+r.IntN(2*c.unread()))
		if r.IntN(2) == 0 {
			err = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		} else {
			err = cmd.Process.Kill()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err = cmd.Wait()
	if _, cerr := io.Copy(io.Discard, over); cerr != nil {
		t.Fatal(cerr)
	}
	if !kill && err != nil {
		t.Fatalf("%q: %v: %s", args, err, stderr.String())
	}
	c.read(t)
	c.settledNow(t)
	if err := faultless(c.dir); err != nil {
		t.Fatalf("round %d, %q: %v", c.round, args, err)
	}
}

// unread returns how many events are not settled. Handlers write two lines for each.
func (c *conversed) unread() (n int) {
	for _, ids := range c.ids {
		for _, id := range ids {
			if !c.settled[id] {
				n++
			}
		}
	}
	return n
}

// hears waits until handlers have written that many lines more.
func (c *conversed) hears(t *testing.T, lines int) {
	t.Helper()
	f, err := os.Open(c.log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(c.offset, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for limit := time.Now().Add(runLimit); lines > 0; {
		n, err := f.Read(buf)
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if lines -= bytes.Count(buf[:n], []byte("\n")); n == 0 {
			if time.Now().After(limit) {
				t.Fatalf("round %d: nothing happens any more, and %d lines are missing", c.round, lines)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func (c *conversed) push(t *testing.T, r *rand.Rand) {
	t.Helper()
	var b strings.Builder
	for range ofRound {
		c.head++
		key, typ := "s"+strconv.Itoa(r.IntN(conversations)), "message"
		if r.IntN(3) == 0 {
			key = "s0" // a key with a backlog
		}
		if r.IntN(5) == 0 && c.head%ofRound != 0 { // the last one matches, and progress comes to it
			typ = "other"
		} else {
			c.ids[key] = append(c.ids[key], c.head)
		}
		fmt.Fprintf(&b, `{"source":%q,"type":%q,"content":"{\"k\":\"%s\"}"}`+"\n", key, typ, key)
	}
	thread(t, b.String(), "push", "--thread", c.dir, "--batch", "--quiet")
}

// read judges what the handlers have written in this round.
func (c *conversed) read(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(c.log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text[c.offset:])) {
		f := strings.Fields(line)
		id, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		at := c.at[f[1]]
		switch {
		case f[0] == "b":
			if at == nil {
				at = &conversation{how: "ok"}
				c.at[f[1]] = at
			}
			c.begins(t, f[1], id, at)
			*at = conversation{id, "out", c.round}
		case at == nil || at.id != id:
			t.Fatalf("%q, and event %+v is out", line, at)
		case f[0] == "k":
			at.how = "killed"
		default:
			at.how = f[3]
		}
	}
	c.offset = int64(len(text))
}

func (c *conversed) begins(t *testing.T, key string, id int64, at *conversation) {
	t.Helper()
	next := c.ids[key]
	i, _ := slices.BinarySearch(next, at.id+1)
	next = next[i:]
	switch {
	case c.settled[id]:
		t.Fatalf("round %d, key %s: event %d was settled, and comes again", c.round, key, id)
	case id == at.id && at.how == "out" && at.round == c.round:
		t.Fatalf("round %d, key %s: event %d comes twice at once", c.round, key, id)
	case id == at.id && at.how == "ok" && at.round == c.round:
		t.Fatalf("round %d, key %s: event %d has ended well, and comes again", c.round, key, id)
	case id == at.id:
		if c.again++; at.how == "ok" {
			c.unstored++
		}
	case len(next) == 0 || id != next[0]:
		t.Fatalf("round %d, key %s: event %d comes after %+v, next are %v", c.round, key, id, at, next[:min(3, len(next))])
	case at.how != "ok":
		t.Fatalf("round %d, key %s: event %d comes, and before it %+v", c.round, key, id, at)
	case at.id != 0 && at.round < c.round && !c.settled[at.id]:
		t.Fatalf("round %d, key %s: event %d comes, and event %d was never settled", c.round, key, id, at.id)
	}
}

// settledNow notes what is settled, now that no process is at work.
func (c *conversed) settledNow(t *testing.T) {
	t.Helper()
	th, err := engine.Open(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	info, err := th.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.info = info.Subscriptions[0]
	c.above += c.info.Settled
	for key, at := range c.at { // what came before it in its key was settled when it came
		state, err := th.EventState(ctx, "c", at.id)
		if err != nil {
			t.Fatal(err)
		}
		done := at.id <= c.info.LastAcked || state.Settled
		if done && at.how != "ok" {
			t.Fatalf("round %d, key %s: event %d is settled, and its handler said %s", c.round, key, at.id, at.how)
		}
		for _, id := range c.ids[key] {
			if id < at.id || id == at.id && done {
				c.settled[id] = true
			}
		}
	}
}
