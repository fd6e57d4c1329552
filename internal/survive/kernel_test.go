//go:build linux

package survive

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKernel cuts the power of a real kernel on a real file system: a User Mode
// Linux machine pushes as fast as it can and is killed at a random moment, with all
// that its kernel had not written to the disk. A second boot replays the file
// system's journal and looks: check finds nothing, each push that was acknowledged
// is there, nothing else is, and the next push works; so are acks, messages and runs;
// backups that were written are whole, and can be restored, and a thread with limits has
// the newest events. All cuts of one file system are on one disk. THREAD_POWER is how many there are of each (make power).
func TestKernel(t *testing.T) {
	cuts, _ := strconv.Atoi(os.Getenv("THREAD_POWER"))
	if cuts <= 0 {
		t.Skip("run make power")
	}
	pushes, _ := strconv.Atoi(os.Getenv("THREAD_POWER_PUSHES"))
	kernel, err := exec.LookPath("linux.uml")
	if err != nil {
		t.Skip("NOTHING WAS TRIED: there is no linux.uml; it is in the Debian package user-mode-linux, for amd64 and i386")
	}
	for _, fs := range []struct {
		name, mkfs string
		flags      []string
	}{
		{"ext4", "mkfs.ext4", []string{"-q", "-F"}},
		{"f2fs", "mkfs.f2fs", []string{"-q", "-f"}},
		{"vfat", "mkfs.vfat", []string{"-F", "32"}},
	} {
		t.Run(fs.name, func(t *testing.T) {
			if _, err := exec.LookPath(fs.mkfs); err != nil {
				t.Skipf("NOTHING WAS TRIED: there is no %s", fs.mkfs)
			}
			m := newMachine(t, kernel, fs.name)
			m.atLeast = max(1, pushes)
			if r := run(t, "", fs.mkfs, append(fs.flags, m.disk)...); r.code != 0 {
				t.Fatal(r)
			}
			for n := range cuts {
				if n%5 == 0 {
					m.make(t, n)
				}
				m.use(t, n)
				t.Logf("cut %d: %d pushes were acknowledged, %d cuts were during a fold", n+1, m.pushes, m.folding)
			}
			m.look(t, cuts)
			t.Logf("%d cuts, %d pushes were acknowledged, at least %d in a cut, and %d cuts were during a fold; none is lost. "+
				"Of the last %d cuts: %d events, %d messages, %d runs, backup %s, event %d where some are dropped", cuts, m.pushes, m.least, m.folding,
				(cuts-1)%10+1, len(m.found.Events), len(m.found.Messages), len(m.found.Runs), m.found.Backup, m.told.newest)
			if cuts > 1 && m.folding == 0 {
				t.Error("no cut was during a fold")
			}
		})
	}
}

type machine struct {
	kernel, fs string
	root, disk string
	r          *rand.Rand

	told  told  // since the machine began again
	found found // at the last look

	atLeast       int           // how many pushes of each cut are acknowledged
	pushes, least int           // that were acknowledged, and at least in one cut
	folding       int           // cuts in which the power went during a fold
	fold          time.Duration // how long the last fold took
}

// newMachine makes the root directory of the guest and an empty disk.
func newMachine(t *testing.T, kernel, fs string) *machine {
	t.Helper()
	m := &machine{kernel: kernel, fs: fs, root: t.TempDir(), least: math.MaxInt, r: rand.New(rand.NewPCG(1, 2))}
	m.disk = filepath.Join(t.TempDir(), "disk")
	for _, dir := range []string{"proc", "dev", "mnt", "modules"} {
		if err := os.Mkdir(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "test", "-c", "-o", filepath.Join(m.root, "init"), "./guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	if err := buildProgram(filepath.Join(m.root, "thread"), "lite", "-ldflags=-s -w"); err != nil { // a small one: its pages are slow to come
		t.Fatal(err)
	}
	for i, name := range map[string][]string{ // ext4 is part of the kernel
		"f2fs": {"crypto/crc32_generic.ko", "fs/f2fs/f2fs.ko"},
		"vfat": {"fs/nls/nls_cp437.ko", "fs/nls/nls_ascii.ko", "fs/nls/nls_iso8859-1.ko", "fs/nls/nls_utf8.ko", "fs/fat/fat.ko", "fs/fat/vfat.ko"},
	}[fs] {
		modules, err := filepath.Glob("/usr/lib/uml/modules/*/kernel/" + name)
		if err != nil || len(modules) == 0 {
			if strings.HasPrefix(name, "fs/nls/") {
				continue // which of them are modules differs; the mount fails without
			}
			t.Skipf("NOTHING WAS TRIED: the kernel has no module %s (%v)", name, err)
		}
		copyFile(t, modules[len(modules)-1], filepath.Join(m.root, "modules", fmt.Sprintf("%d.ko", i)), 0o644)
	}
	f, err := os.Create(m.disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(128 << 20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return m
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// repair does what a host does with a file system without a journal before it uses
// it again.
func (m *machine) repair(t *testing.T) {
	t.Helper()
	if m.fs != "vfat" {
		return
	}
	if r := run(t, "", "fsck.vfat", "-a", m.disk); r.code > 1 {
		t.Fatal(r)
	}
}

// boot starts the machine in a separate process group and returns its console.
func (m *machine) boot(t *testing.T, env ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	args := append([]string{"boot", m.kernel, "mem=160M", "root=/dev/root", "rootfstype=hostfs", "rootflags=" + m.root, "rw", "init=/init",
		"ubd0=" + m.disk, "con=null", "con0=fd:0,fd:1", "quiet", "FS=" + m.fs,
		// The kernel cannot keep the wide registers apart; see guest/boot_test.go.
		"GODEBUG=cpu.all=off,asyncpreemptoff=1", "GOMAXPROCS=1"}, env...)
	cmd := exec.Command(filepath.Join(m.root, "init"), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cut(cmd)
		}
	})
	return cmd, out
}

// cut kills the machine with all its processes. What its kernel had in memory is
// gone, what it had given to the disk is there.
func cut(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// bootLimit is when a boot counts as failed.
const bootLimit = 10 * time.Minute

// make lets the machine make a thread, and in every second cut push to it and prune
// it, and cuts its power as soon as that has returned 0. What it made must be
// there.
func (m *machine) make(t *testing.T, n int) {
	t.Helper()
	cmd, console := m.boot(t, "WORK=make", fmt.Sprintf("BOOT=%d", n))
	limit := time.AfterFunc(bootLimit, func() { cut(cmd) })
	lines := bufio.NewScanner(console)
	made := ""
	var seen strings.Builder
	for made == "" && lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		if rest, ok := strings.CutPrefix(line, "MADE "); ok {
			made = rest
		}
		fmt.Fprintln(&seen, line)
	}
	limit.Stop()
	cut(cmd)
	cmd.Wait()
	m.repair(t)
	if made == "" {
		t.Fatalf("boot %d: the machine makes no thread: %s", n, seen.String())
	}
	cmd, console = m.boot(t, "WORK=made", fmt.Sprintf("BOOT=%d", n))
	limit = time.AfterFunc(bootLimit, func() { cut(cmd) })
	out, err := io.ReadAll(console)
	limit.Stop()
	cut(cmd)
	cmd.Wait()
	m.repair(t)
	if want := "FOUND " + made; err != nil || !strings.Contains(string(out), want) {
		t.Fatalf("cut %d after what was made: the next boot says %s%v, want %s", n, out, err, want)
	}
}

// use lets the machine look at what the cut before has left, and push, and cuts its
// power: in every second cut while it folds the journal, and otherwise at a random moment.
func (m *machine) use(t *testing.T, n int) {
	t.Helper()
	cmd, console := m.boot(t, "WORK=use", fmt.Sprintf("BOOT=%d", n))
	limit := time.AfterFunc(bootLimit, func() { cut(cmd) })
	var seen strings.Builder
	var began time.Time // of the fold
	pushes, armed, folding := 0, false, false
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "CHECKED":
			m.verify(t, n-1)
			if n%10 == 0 {
				m.told = told{} // the machine begins again
			}
		case "READY":
		case "STORED":
			pushes++
			m.told.store(rest)
			if pushes >= m.atLeast && n%2 == 1 && !armed {
				armed = true
				limit.Reset(time.Duration(m.r.IntN(2000)) * time.Millisecond)
			}
		case "FOLDING":
			began, folding = time.Now(), true
			if pushes >= m.atLeast && n%2 == 0 {
				limit.Reset(time.Duration(m.r.Int64N(int64(m.fold + 1))))
			}
		case "FOLDED":
			m.fold, folding = time.Since(began), false
			if pushes >= m.atLeast && n%2 == 0 {
				limit.Reset(bootLimit) // it was faster than the last one: the next one is cut
			}
		default:
			if !m.told.add(word, rest) {
				fmt.Fprintln(&seen, line)
			}
		}
		if word == "FAILED" {
			break
		}
	}
	limit.Stop()
	cut(cmd)
	cmd.Wait()
	m.repair(t)
	if pushes < m.atLeast || strings.Contains(seen.String(), "FAILED") {
		t.Fatalf("boot %d: the machine has pushed %d times: %s", n, pushes, seen.String())
	}
	m.pushes += pushes
	m.least = min(m.least, pushes)
	if folding {
		m.folding++
	}
}
