//go:build linux

package survive

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/jsonlog"
)

// TestKernel cuts the power of a real kernel on a real file system: a User Mode
// Linux machine pushes as fast as it can and is killed at a random moment, with all
// that its kernel had not written to the disk. A second boot replays the file
// system's journal and looks: check finds nothing, each push that was acknowledged
// is there, nothing else is, and the next push works; backups that were written are whole, and can be
// restored, and a thread with limits has the newest events. All cuts of one file system
// are on one disk. THREAD_POWER is how many there are of each (make power).
func TestKernel(t *testing.T) {
	cuts, _ := strconv.Atoi(os.Getenv("THREAD_POWER"))
	if cuts <= 0 {
		t.Skip("run make power")
	}
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
			if r := run(t, "", fs.mkfs, append(fs.flags, m.disk)...); r.code != 0 {
				t.Fatal(r)
			}
			for n := range cuts {
				m.make(t, n)
				m.use(t, n)
				m.verify(t, n)
			}
			t.Logf("%d cuts, %d pushes were acknowledged, %d events are there, backup %s, event %d where some are dropped", cuts, len(m.stored), m.events, m.saved, m.newest)
		})
	}
}

type machine struct {
	kernel, fs string
	root, disk string
	r          *rand.Rand

	stored []stored // what was acknowledged on the console
	acked  int64
	saved  string // the newest backup, "" for none
	newest int64  // id in the thread that drops events
	events int    // in the end
}

type stored struct {
	first, last int64
	content     string
}

// newMachine makes the root directory of the guest and an empty disk.
func newMachine(t *testing.T, kernel, fs string) *machine {
	t.Helper()
	m := &machine{kernel: kernel, fs: fs, root: t.TempDir(), r: rand.New(rand.NewPCG(1, 2))}
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
	copyFile(t, program, filepath.Join(m.root, "thread"), 0o755)
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
		"GODEBUG=cpu.all=off"}, env...)
	cmd := exec.Command(filepath.Join(m.root, "init"), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// cut kills the machine with all its processes. What its kernel had in memory is
// gone, what it had given to the disk is there.
func cut(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// bootLimit is when a boot counts as failed.
const bootLimit = 3 * time.Minute

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

// use lets the machine push, and cuts its power at a random moment.
func (m *machine) use(t *testing.T, n int) {
	t.Helper()
	cmd, console := m.boot(t, "WORK=push", fmt.Sprintf("BOOT=%d", n))
	limit := time.AfterFunc(bootLimit, func() { cut(cmd) })
	ready := false
	var seen strings.Builder
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "READY":
			ready = true
			limit.Reset(time.Duration(30+m.r.IntN(2500)) * time.Millisecond)
		case "STORED":
			var s stored
			first, rest, _ := strings.Cut(rest, " ")
			last, content, ok := strings.Cut(rest, " ")
			s.first, _ = strconv.ParseInt(first, 10, 64)
			s.last, _ = strconv.ParseInt(last, 10, 64)
			s.content = content
			if ok && s.first > 0 && s.last >= s.first {
				m.stored = append(m.stored, s)
			}
		case "ACKED":
			m.acked, _ = strconv.ParseInt(rest, 10, 64)
		case "SAVED":
			if len(rest) == 6 { // the last line can be torn
				m.saved = rest
			}
		case "LIMITED":
			m.newest, _ = strconv.ParseInt(rest, 10, 64)
		default:
			fmt.Fprintln(&seen, line)
		}
		if word == "FAILED" {
			break
		}
	}
	limit.Stop()
	cut(cmd)
	cmd.Wait()
	m.repair(t)
	if !ready || strings.Contains(seen.String(), "FAILED") {
		t.Fatalf("boot %d: the machine does not push: %s", n, seen.String())
	}
}

// whole is what a line on the console must look like: the last one can be torn.
var whole = regexp.MustCompile(`^(boot \d+ push \d+ x*|after the cut)$`)

// verify boots the machine once more and compares what it finds.
func (m *machine) verify(t *testing.T, n int) {
	t.Helper()
	cmd, console := m.boot(t, "WORK=check")
	limit := time.AfterFunc(bootLimit, func() { cut(cmd) })
	out, err := io.ReadAll(console)
	limit.Stop()
	cut(cmd)
	cmd.Wait()
	m.repair(t)
	if err != nil || !strings.Contains(string(out), "CHECKED") {
		t.Fatalf("cut %d: the thread cannot be used: %s%v", n, out, err)
	}
	report, err := os.ReadFile(filepath.Join(m.root, "check"))
	if err != nil || strings.Contains(string(report), "Fault:") || !strings.Contains(string(report), "Digest:") {
		t.Fatalf("cut %d: check says: %s%v", n, report, err)
	}
	text, err := os.ReadFile(filepath.Join(m.root, "events"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[int64]string{}
	for line := range strings.Lines(string(text)) {
		var e struct {
			ID      int64
			Content string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("cut %d: %v: %.200s", n, err, line)
		}
		if e.ID != int64(len(found)+1) || !whole.MatchString(e.Content) {
			t.Fatalf("cut %d: event %d of %d is %.200q", n, e.ID, len(found)+1, e.Content)
		}
		found[e.ID] = e.Content
	}
	for i, s := range m.stored {
		for id := s.first; id <= s.last; id++ {
			if got := found[id]; got != s.content && (i < len(m.stored)-1 || !strings.HasPrefix(got, s.content)) {
				t.Fatalf("cut %d: event %d was acknowledged as %.100q and is %.100q", n, id, s.content, got)
			}
		}
	}
	info, err := os.ReadFile(filepath.Join(m.root, "info"))
	if err != nil {
		t.Fatal(err)
	}
	if acked := regexp.MustCompile(`"last_acked_id": (\d+)`).FindSubmatch(info); m.acked > 0 {
		if id, err := strconv.ParseInt(string(acked[1]), 10, 64); err != nil || id < m.acked {
			t.Fatalf("cut %d: event %d was acked, %d says info", n, m.acked, id)
		}
	}
	m.events = len(found)
	if backup := regexp.MustCompile(`BACKUP (\d{6})`).FindSubmatch(out); m.saved != "" && (backup == nil || string(backup[1]) < m.saved) {
		t.Fatalf("cut %d: backup %s was written, the newest is %q", n, m.saved, backup)
	}
	m.verifyLimited(t, n)
}

// verifyLimited: what limits leave are the newest events, as many as they say, and perhaps those
// of two batches more, one for each cut before which they could not be kept.
func (m *machine) verifyLimited(t *testing.T, n int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.root, "limited"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []int64
	for line := range strings.Lines(string(text)) {
		id, ok := jsonlog.LineID([]byte(strings.TrimSuffix(line, "\n")))
		if len(ids) > 0 && id != ids[len(ids)-1]+1 || !ok {
			t.Fatalf("cut %d: the event after %v is %.200s", n, ids, line)
		}
		ids = append(ids, id)
	}
	if m.newest == 0 {
		return
	}
	if len(ids) == 0 || ids[len(ids)-1] < m.newest || len(ids) < int(min(ids[len(ids)-1], 175)) || len(ids) > 200+2*60 {
		t.Fatalf("cut %d: %d events are left, up to %v, and %d was acknowledged", n, len(ids), ids, m.newest)
	}
}
