//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The accounts of these tests: one that every system has, and one that no list
// names.
const (
	root     = 0
	nobody   = 65534
	stranger = 60001
)

// accounts is a directory that every account can reach, with a program in it.
type accounts struct {
	*testing.T
	dir, thread string // thread is the directory of the other account's thread
	ran         *os.File
	lines       *bufio.Reader
}

// newAccounts makes a thread of the other account with one handler, which says as whom it
// runs.
func newAccounts(t *testing.T) *accounts {
	if os.Geteuid() != root {
		t.Skip("only root can be another account")
	}
	dir, err := os.MkdirTemp("", "accounts")
	if err != nil {
		t.Fatal(err)
	}
	a := &accounts{T: t, dir: dir, thread: filepath.Join(dir, "home", "inbox")}
	t.Cleanup(func() {
		for deadline := time.Now().Add(time.Minute); os.RemoveAll(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond) // a supervisor is still closing up in there
		}
	})
	a.check(os.Chmod(dir, 0o755))
	exe, err := os.Executable()
	a.check(err)
	program, err := os.ReadFile(exe)
	a.check(err)
	a.check(os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	syscall.ForkLock.RLock() // or a child that is just being started has it open for writing
	err = os.WriteFile(filepath.Join(dir, "bin", "thread"), program, 0o755)
	syscall.ForkLock.RUnlock()
	a.check(err)
	a.check(os.Link(filepath.Join(dir, "bin", "thread"), filepath.Join(dir, "bin", "thread-serve")))
	a.check(os.Mkdir(filepath.Dir(a.thread), 0o755))
	a.check(os.Chown(filepath.Dir(a.thread), nobody, nobody))
	fifo := filepath.Join(dir, "ran")
	a.check(unix.Mkfifo(fifo, 0o666))
	a.check(os.Chmod(fifo, 0o666))
	a.ran, err = os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0)
	a.check(err)
	t.Cleanup(func() { a.ran.Close() })
	a.lines = bufio.NewReader(a.ran)
	a.ok(nobody, "init", a.thread)
	a.subscribe(a.thread)
	return a
}

// subscribe subscribes a handler that is found without a path.
func (a *accounts) subscribe(thread string) {
	a.Helper()
	cmd := a.command(nobody, "subscribe", "--thread", thread, "--consumer", "c", "--handler",
		`thread consume -- sh -c 'cat >/dev/null; echo "$(id -u) $(id -g) $(id -G) $HOME $USER${SECRET+ leaked}" > `+a.ran.Name()+`'`)
	cmd.Env = append(cmd.Env, "THREAD_DISPATCH=none") // its dispatch would run what is pushed next
	a.check(cmd.Run())
}

func (a *accounts) check(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

func (a *accounts) command(uid uint32, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(a.dir, "bin", "thread"), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + a.dir, "SECRET=1", "THREAD_DISPATCH=spawn"}
	if counters := os.Getenv("GOCOVERDIR"); counters != "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+counters)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

func (a *accounts) Run(uid uint32, args ...string) (stderr string, code int) {
	a.Helper()
	cmd := a.command(uid, args...)
	var out bytes.Buffer
	cmd.Stderr = &out
	err := cmd.Run()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		a.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// ok runs a command that succeeds and says nothing on stderr.
func (a *accounts) ok(uid uint32, args ...string) {
	a.Helper()
	if stderr, code := a.Run(uid, args...); code != 0 || stderr != "" {
		a.Fatalf("%v: exit code %d, %s", args, code, stderr)
	}
}

// says runs a command that ends with code and says one line on stderr, which
// contains all of want.
func (a *accounts) says(uid uint32, code int, want []string, args ...string) {
	a.Helper()
	stderr, got := a.Run(uid, args...)
	if got != code || strings.Count(stderr, "\n") != 1 {
		a.Errorf("%v: exit code %d, stderr %q", args, got, stderr)
	}
	for _, w := range want {
		if !strings.Contains(stderr, w) {
			a.Errorf("%v: %q does not contain %q", args, stderr, w)
		}
	}
}

func (a *accounts) push(thread string) []string {
	return []string{"push", "--thread", thread, "--source", "s", "--type", "t", "--content", "x", "--quiet"}
}

// runAs waits for n runs of the handler for one event, each as the other account.
func (a *accounts) runAs(n int) {
	a.Helper()
	for range n {
		a.ran.SetReadDeadline(time.Now().Add(time.Minute))
		line, err := a.lines.ReadString('\n')
		if err != nil {
			log, _ := os.ReadFile(filepath.Join(a.thread, "logs", "thread.log"))
			a.Fatalf("no handler ran: %v\n%s", err, log)
		}
		if !strings.HasPrefix(line, "65534 65534 65534 ") {
			a.Errorf("the handler ran as %s", line)
		}
	}
}

// foreign lists the files of the thread that are not the other account's.
func (a *accounts) foreign() (list []string) {
	a.check(filepath.WalkDir(a.thread, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an offer, or a note being replaced
		}
		info, err := os.Lstat(path)
		if err == nil && info.Sys().(*syscall.Stat_t).Uid != nobody {
			list = append(list, path)
		}
		return nil
	}))
	return list
}

// openToAll lets every account push.
func (a *accounts) openToAll() {
	a.check(filepath.WalkDir(a.thread, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, map[bool]fs.FileMode{true: 0o777, false: 0o666}[d.IsDir()])
	}))
}

func TestPushByRoot(t *testing.T) {
	a := newAccounts(t)
	// Everything but the database is made again by root.
	for _, name := range []string{"run", "logs", "events.jsonl"} {
		a.check(os.RemoveAll(filepath.Join(a.thread, name)))
	}
	cmd := a.command(root, "subscribe", "--thread", a.thread, "--consumer", "other", "--handler", "true", "--filter", "0")
	a.check(cmd.Run())
	a.ok(root, a.push(a.thread)...)
	a.ran.SetReadDeadline(time.Now().Add(time.Minute))
	line, err := a.lines.ReadString('\n')
	if want := "65534 65534 65534 /nonexistent nobody\n"; line != want {
		t.Errorf("the handler ran as %q, want %q, %v", line, want, err)
	}
	a.ok(root, "compact", "--thread", a.thread)
	a.ok(root, "consume", "--thread", a.thread, "--consumer", "other", "--", "true")
	a.ok(root, a.push(a.thread)...)
	a.runAs(1)
	if list := a.foreign(); len(list) > 0 {
		t.Errorf("root left %v", list)
	}
	a.ok(nobody, a.push(a.thread)...)
	a.runAs(1)
}

func TestPushByAnother(t *testing.T) {
	a := newAccounts(t)
	a.openToAll()
	belongs := []string{"Warning: push: the event is stored", "belongs to nobody"}
	a.check(os.Chmod(filepath.Join(a.thread, "logs"), 0o700))
	a.says(stranger, 0, belongs, a.push(a.thread)...)
	a.openToAll()
	a.says(stranger, 0, belongs, a.push(a.thread)...)
	for _, verb := range []string{"dispatch", "serve"} {
		for _, uid := range []uint32{root, stranger} {
			a.says(uid, 1, []string{"Error: ", a.thread + " belongs to nobody - run it as nobody", "safe-directories"}, verb, "--thread", a.thread)
		}
	}
	if log, _ := os.ReadFile(filepath.Join(a.thread, "logs", "thread.log")); bytes.Contains(log, []byte("spawned")) {
		t.Errorf("a handler was started:\n%s", log)
	}
	a.ok(nobody, "dispatch", "--thread", a.thread)
	a.runAs(2)

	// A server is told.
	a.openToAll()
	server := a.command(nobody, "serve", "--thread", a.thread)
	stderr, err := server.StderrPipe()
	a.check(err)
	a.check(server.Start())
	defer server.Wait()
	defer server.Process.Signal(syscall.SIGTERM)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "msg=serving") {
	}
	go io.Copy(io.Discard, stderr)
	a.ok(stranger, a.push(a.thread)...)
	a.runAs(1)
}

func TestSafeDirectories(t *testing.T) {
	a := newAccounts(t)
	list := filepath.Join(a.dir, ".config", "thread", "safe-directories")
	a.check(os.MkdirAll(filepath.Dir(list), 0o755))
	link := filepath.Join(a.dir, "link")
	a.check(os.Symlink(a.thread, link))
	dispatch := []string{"dispatch", "--thread", a.thread}
	for _, tc := range []struct {
		name, text string
		mode       fs.FileMode
		owner      int
		counts     bool
	}{
		{"another directory", "# mine\n" + a.dir + "\n", 0o600, root, false},
		{"everything", "*\n", 0o600, root, false},
		{"others may write it", a.thread + "\n", 0o622, root, false},
		{"the owner's own", a.thread + "\n", 0o600, nobody, false},
		{"by way of a link", "\n# trusted\n" + link + "\n", 0o644, root, true},
	} {
		a.check(os.WriteFile(list, []byte(tc.text), 0o600))
		a.check(os.Chmod(list, tc.mode))
		a.check(os.Chown(list, tc.owner, tc.owner))
		if stderr, code := a.Run(root, dispatch...); (code == 0) != tc.counts {
			t.Errorf("%s: exit code %d, %s", tc.name, code, stderr)
		}
	}
}

// Who the owner is takes both the directory and the database.
func TestOwners(t *testing.T) {
	for _, tc := range []struct {
		name       string
		mode       fs.FileMode
		dir, db    int
		owned      bool // by the other account
		root, self string
	}{
		{"root's directory", 0o755, root, nobody, true, "", ""},
		{"a sticky one", 0o777 | fs.ModeSticky, root, nobody, true, "", ""},
		{"one where others may exchange files", 0o777, root, nobody, false, "belongs to root, but its events.db to nobody", "belongs to root, but its events.db to nobody"},
		{"a database that another put there", 0o755, nobody, stranger, false, "belongs to nobody, but its events.db to uid 60001", ""},
		{"a database that root left there", 0o755, nobody, root, false, "belongs to nobody, but its events.db to root", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAccounts(t)
			a.check(os.Chown(a.thread, tc.dir, tc.dir))
			a.check(os.Chmod(a.thread, tc.mode))
			a.check(os.Chown(filepath.Join(a.thread, "events.db"), tc.db, tc.db))
			if tc.owned {
				a.ok(root, a.push(a.thread)...)
				a.runAs(1)
				a.ok(nobody, a.push(a.thread)...)
				a.runAs(1)
				return
			}
			a.says(root, 0, []string{tc.root}, a.push(a.thread)...)
			a.says(root, 1, []string{tc.root}, "dispatch", "--thread", a.thread)
			if tc.self != "" {
				a.says(nobody, 0, []string{tc.self}, a.push(a.thread)...)
				a.says(nobody, 1, []string{tc.self}, "dispatch", "--thread", a.thread)
			}
			if log, _ := os.ReadFile(filepath.Join(a.thread, "logs", "thread.log")); bytes.Contains(log, []byte("spawned")) {
				t.Errorf("a handler was started:\n%s", log)
			}
		})
	}
}

// A server leaves the threads of others alone that it finds below a root.
func TestServeRootOfAnother(t *testing.T) {
	a := newAccounts(t)
	home := filepath.Dir(a.thread)
	own := filepath.Join(home, "own")
	a.check(os.Mkdir(own, 0o700)) // root's
	a.ok(root, "init", own)
	a.ok(nobody, a.push(a.thread)...)
	a.runAs(1)
	server := a.command(root, "serve", "--root", home)
	stderr, err := server.StderrPipe()
	a.check(err)
	a.check(server.Start())
	defer server.Wait()
	defer server.Process.Signal(syscall.SIGTERM)
	var refused, serving string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.Contains(lines.Text(), "cannot be served") {
			refused += lines.Text() + "\n"
		}
		if strings.Contains(lines.Text(), "msg=serving") {
			serving = lines.Text()
			break
		}
	}
	go io.Copy(io.Discard, stderr)
	if !strings.Contains(serving, "threads=1") || strings.Count(refused, "\n") != 1 || !strings.Contains(refused, a.thread+" belongs to nobody") {
		t.Errorf("%s\n%s", refused, serving)
	}
	a.ok(root, a.push(a.thread)...)
	a.runAs(1)
}

// What a former version, run by root, left in a thread is named to the owner.
func TestForeignLeftovers(t *testing.T) {
	for _, name := range []string{"run/c.lock", "run/c.busy", "run/slots", "logs", "logs/handlers"} {
		t.Run(name, func(t *testing.T) {
			a := newAccounts(t)
			path := filepath.Join(a.thread, filepath.FromSlash(name))
			if strings.Contains(name, ".") {
				a.check(os.WriteFile(path, nil, 0o600))
			} else {
				a.check(os.MkdirAll(path, 0o700))
				a.check(os.Chown(path, root, root))
			}
			cmd := a.command(nobody, a.push(a.thread)...)
			cmd.Env = append(cmd.Env, "THREAD_DISPATCH=none") // or dispatch may see its locks held
			a.check(cmd.Run())
			said := path + " belongs to root"
			advice := "as root, run chown -R " + strconv.Itoa(nobody) + " " + a.thread
			a.says(nobody, 1, []string{"Error: " + said, advice}, "dispatch", "--thread", a.thread)
			a.await(filepath.Join(a.thread, "run", ".trouble"))
			a.says(nobody, 0, []string{"Warning: push: the event is stored, but " + said, advice}, a.push(a.thread)...)
			a.check(filepath.WalkDir(a.thread, func(path string, _ fs.DirEntry, err error) error {
				if cerr := os.Chown(path, nobody, nobody); !errors.Is(cerr, fs.ErrNotExist) { // the dispatch of the push replaces a file
					err = errors.Join(err, cerr)
				}
				return err
			}))
			a.ok(nobody, a.push(a.thread)...)
			a.runAs(3)
		})
	}
}

// await waits for a file.
func (a *accounts) await(path string) {
	a.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			a.Fatalf("%s does not come", path)
		}
	}
}
