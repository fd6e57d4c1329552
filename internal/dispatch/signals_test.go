//go:build linux

package dispatch

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// fifo is a named pipe through which a handler or a stopped process speaks.
// Both ends are kept open here, so that neither side's open blocks the test.
type fifo struct {
	b    *bench
	f    *os.File
	path string
	rest string
}

func (b *bench) fifo(name string) *fifo {
	b.Helper()
	path := b.path(name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return &fifo{b: b, f: f, path: path}
}

// line waits for the next line.
func (f *fifo) line() string {
	f.b.Helper()
	s, err := f.next(patience)
	if err != nil {
		f.b.Fatalf("nothing came through %s: %v\n%s", filepath.Base(f.path), err, f.b.log())
	}
	return s
}

func (f *fifo) next(wait time.Duration) (string, error) {
	f.f.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 4096)
	for {
		if line, rest, ok := strings.Cut(f.rest, "\n"); ok {
			f.rest = rest
			return line, nil
		}
		n, err := f.f.Read(buf)
		if err != nil {
			return "", err
		}
		f.rest += string(buf[:n])
	}
}

// numbers waits for a line of numbers.
func (f *fifo) numbers() []int {
	f.b.Helper()
	var list []int
	for _, word := range strings.Fields(f.line()) {
		n, err := strconv.Atoi(word)
		if err != nil {
			f.b.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// say lets one reader of the pipe continue.
func (f *fifo) say() {
	f.b.Helper()
	if _, err := f.f.Write([]byte("go\n")); err != nil {
		f.b.Fatal(err)
	}
}

// awaitLog waits until the thread's log has n lines with the text.
func (b *bench) awaitLog(text string, n int) {
	b.Helper()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		b.Fatal(err)
	}
	defer watcher.Close()
	if err := watcher.Add(filepath.Join(b.t.Dir(), "logs")); err != nil {
		b.Fatal(err)
	}
	late := time.After(patience)
	for strings.Count(b.log(), text) < n {
		select {
		case <-watcher.Events:
		case err := <-watcher.Errors:
			b.Fatal(err)
		case <-late:
			b.Fatalf("%q is not %d times in the log:\n%s", text, n, b.log())
		}
	}
}

// awaitIdle waits until no process of the thread is left.
func (b *bench) awaitIdle() {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if list := awaitNobody(ctx, b.t.Dir(), superviseVerb, "dispatch"); len(list) > 0 {
		b.Fatalf("supervisors are left: %v\n%s", list, b.log())
	}
}

// awaitNobody waits until no process with one of the verbs is left of the thread
// at dir, or ctx, and returns those that are. A process may start the next one and
// end while others are looked at: only a search proves something during which
// no process has ended who may have been one.
func awaitNobody(ctx context.Context, dir string, verbs ...string) []int {
	var before census
	for {
		now, err := search(dir, verbs)
		if err == nil && len(now.found) == 0 && !now.mayHaveEnded(before) {
			return nil
		}
		if ctx.Err() != nil {
			return now.pids()
		}
		for _, pid := range now.pids() {
			awaitDeath(ctx, pid)
		}
		before = now
	}
}

// process is one of a thread's: its verb, and for supervisors their mode and,
// for standbys, whom they stand by for.
type process struct {
	pid, parent int
	verb, mode  string
}

// census is what a search of all processes has found.
type census struct {
	found  []process
	others map[string]bool // by path: those with another command line
	mute   []string        // those that had none: ended, or the kernel's
}

// mayHaveEnded reports whether one of those that were searched for may have ended
// during the search, which came after the one given.
func (c census) mayHaveEnded(before census) bool {
	for _, path := range c.mute {
		if !before.others[path] && !slices.Contains(before.mute, path) {
			return true
		}
	}
	return false
}

func (c census) pids() (list []int) {
	for _, p := range c.found {
		list = append(list, p.pid)
	}
	return list
}

// search looks for the running processes of the program that have one of the
// verbs and the thread at dir among their arguments.
func search(dir string, verbs []string) (c census, err error) {
	c.others = map[string]bool{}
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range list {
		text := commandLine(path)
		if len(text) == 0 {
			c.mute = append(c.mute, path)
			continue
		}
		args := strings.Split(string(text), "\x00")
		if strings.HasPrefix(filepath.Base(args[0]), "qemu-") { // tools/qemu.sh: what it emulates follows
			args = args[1:]
		}
		if len(args) < 3 || !slices.Contains(verbs, args[1]) || !slices.Contains(args, dir) {
			c.others[path] = true
			continue
		}
		p := process{verb: args[1]}
		p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if p.verb == superviseVerb {
			p.mode = args[2]
			if i := slices.Index(args, "-parent"); i > 0 {
				p.parent, _ = strconv.Atoi(args[i+1])
			}
		}
		c.found = append(c.found, p)
	}
	return c, err
}

// commandLine reads a process's cmdline file, empty for one that has ended. The
// kernel fills it only after exec has closed the descriptors by which the parent
// learns that all went well: until then, that process is known by its program.
func commandLine(path string) []byte {
	self, err := os.Executable()
	for {
		text, _ := os.ReadFile(path)
		if len(text) > 0 || err != nil {
			return text
		}
		if exe, err := os.Readlink(filepath.Join(filepath.Dir(path), "exe")); err != nil || exe != self {
			return nil
		}
	}
}

// processes returns what a search finds.
func processes(dir string, verbs ...string) ([]process, error) {
	c, err := search(dir, verbs)
	return c.found, err
}

// supervisors returns the processes that supervise, stand by or dispatch the thread.
func supervisors(dir string) ([]int, error) {
	c, err := search(dir, []string{superviseVerb, "dispatch"})
	return c.pids(), err
}

// awaitDeath waits until the process has ended, or ctx.
func awaitDeath(ctx context.Context, pid int) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(patience)
	}
	for err = unix.EINTR; err == unix.EINTR; {
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(0, int(time.Until(deadline).Milliseconds())))
	}
}

func alive(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	state := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])[0]
	return state != "Z" && state != "X"
}

func (b *bench) kill(pid int) {
	b.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
		b.Fatal(err)
	}
}
