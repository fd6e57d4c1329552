//go:build linux

package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/lane"
)

// raw sends text to the control socket and returns the answer.
func (b *bench) raw(text string) Answer {
	b.Helper()
	conn, err := net.Dial("unix", filepath.Join(b.t.Dir(), "run", controlSocket))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	// A request that is too long is answered before its end: then this fails.
	conn.Write([]byte(text))
	conn.(*net.UnixConn).CloseWrite()
	var a Answer
	answer, err := io.ReadAll(conn)
	if len(answer) == 0 {
		b.Fatalf("%.40q: no answer: %v", text, err)
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		b.Fatalf("%.40q: %q: %v", text, answer, err)
	}
	return a
}

// TestHostileRequests: whatever comes over the control socket is answered with an
// error, and the server is as it was.
func TestHostileRequests(t *testing.T) {
	b := newBench(t)
	b.serve(Options{})
	for _, text := range []string{
		"", "\n", "{", "null\n", "[]\n", `"runs"` + "\n", "{}\n", `{"op":"format"}` + "\n", `{"op":7}` + "\n", "\x00\xff\n",
		`{"op":"send","message":"` + strings.Repeat("x", maxRequestBytes) + `"}` + "\n", strings.Repeat("[", maxRequestBytes) + "\n",
		`{"op":"send","consumer":"` + strings.Repeat("c", 300<<10) + `","message":"m"}` + "\n",
		`{"op":"abort","consumer":"../../etc"}` + "\n", `{"op":"abort","consumer":""}` + "\n",
	} {
		if a := b.raw(text); a.Error == "" {
			t.Errorf("%.40q: %+v", text, a)
		}
	}
	if a := b.raw(`{"op":"wait","consumer":"c","timeout_ms":9223372036854775807}` + "\n"); !a.Ended {
		t.Errorf("wait for nobody: %+v", a)
	}
	// Datagrams, too: unknown kinds and overlong ones lead to a pass at most.
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	for _, text := range []string{"", "\x00", "pnobody", "p" + strings.Repeat("x", 5000), strings.Repeat("z", 60000)} {
		if err := syscall.Sendto(fd, []byte(text), 0, &syscall.SockaddrUnix{Name: filepath.Join(b.t.Dir(), "run", ".wake")}); err != nil {
			t.Fatal(err)
		}
	}
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo here > "$D/at"; ` + drain})
	b.push("s")
	b.line(at)
	b.idle()
	for _, name := range []string{".wake", controlSocket} {
		info, err := os.Stat(filepath.Join(b.t.Dir(), "run", name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if info, err := os.Stat(filepath.Join(b.t.Dir(), "run")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("run: %v %v", info, err)
	}
}

// TestImpatientWait: the server stops waiting for a client that left.
func TestImpatientWait(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.fifo("go")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo here > "$D/at"; read x < "$D/go"; ` + drain})
	b.serve(Options{})
	b.push("s")
	b.line(at)
	// As many as there may be, all of which leave.
	for range maxRequests {
		conn, err := net.Dial("unix", filepath.Join(b.t.Dir(), "run", controlSocket))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(conn, `{"op":"wait","consumer":"c","timeout_ms":3600000}`)
		conn.Close()
	}
	b.until("admitted", func() bool {
		a, err := askDirectory(b.t.Dir(), Request{Op: "runs"})
		return err == nil && len(a.Runs) == 1
	})
	if err := os.WriteFile(b.path("go"), []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	b.idle()
}

// TestHostileHandler: a handler that puts something else in place of its files,
// or writes nonsense, or does not read, harms itself only.
func TestHostileHandler(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.fifo("next")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `
		say() { echo "$1" > "$D/at"; read x < "$D/next"; }
		head -c 100000 /dev/zero > "$THREAD_STATE"; say zeros
		rm "$THREAD_STATE"; say none
		mkfifo "$THREAD_STATE"; say fifo
		rm "$THREAD_STATE"; ln -s /etc/passwd "$THREAD_STATE"; say link
		rm "$THREAD_STATE"; mkdir "$THREAD_STATE"; say directory
		rmdir "$THREAD_STATE"; echo streaming > "$THREAD_STATE"; say streaming
		rm "$THREAD_MESSAGES"; say deaf
		` + drain})
	b.serve(Options{})
	b.push("s")
	next := func(want string) {
		t.Helper()
		if got := b.line(at); got != want {
			t.Fatalf("the handler says %q, want %q", got, want)
		}
	}
	goOn := func() {
		t.Helper()
		if err := os.WriteFile(b.path("next"), []byte("go\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, state := range []string{"zeros", "none", "fifo", "link", "directory"} {
		next(state)
		if a := b.ask(Request{Op: "send", Consumer: "c", Message: "m"}); a.Error != string(lane.NotStreaming) {
			t.Errorf("%s: %+v", state, a)
		}
		if runs := b.ask(Request{Op: "runs"}).Runs; len(runs) != 1 || runs[0].Activity != "" {
			t.Errorf("%s: %+v", state, runs)
		}
		goOn()
	}
	next("streaming")
	// No process reads: the pipe fills, and then every message is refused.
	message := strings.Repeat("x", 50000)
	if a := b.ask(Request{Op: "send", Consumer: "c", Message: message}); a.Error != "" {
		t.Errorf("%+v", a)
	}
	for range 2 {
		if a := b.ask(Request{Op: "send", Consumer: "c", Message: message}); a.Error != errNotRead.Error() {
			t.Errorf("a full pipe: %+v", a)
		}
	}
	goOn()
	next("deaf")
	goOn()
	b.idle()
}
