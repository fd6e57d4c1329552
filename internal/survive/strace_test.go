package survive

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The system calls that are made to fail, each apart, and how. The program is
// killed at every one of them but those that only read.
var faults = map[string][]string{
	"openat":     {"EIO", "EMFILE", "EACCES", "ENOSPC"},
	"write":      {"EIO", "ENOSPC"},
	"pwrite64":   {"EIO", "ENOSPC"},
	"fsync":      {"EIO", "ENOSPC"},
	"fdatasync":  {"EIO", "ENOSPC"},
	"ftruncate":  {"EIO", "ENOSPC"},
	"renameat":   {"EIO", "ENOSPC", "EACCES"},
	"linkat":     {"EIO", "ENOSPC", "EPERM"},
	"unlinkat":   {"EIO", "EACCES"},
	"unlink":     {"EIO", "EACCES"}, // SQLite's
	"fcntl":      {"ENOLCK"},        // SQLite's locks
	"mkdirat":    {"EIO", "ENOSPC", "EACCES"},
	"fchmodat":   {"EIO", "EACCES"},
	"fchmod":     {"EIO", "EACCES"},
	"flock":      {"ENOLCK", "EIO"},
	"newfstatat": {"EIO", "EACCES"},
	"fstat":      {"EIO"},
	"pread64":    {"EIO"},
	"read":       {"EIO"},
}

var onlyReads = []string{"newfstatat", "fstat", "pread64", "read"}

func needStrace(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("STRACE IS MISSING: nothing of the crash and failure matrix was tried")
	}
	if r := run(t, "", "strace", "-f", "-qq", "-o", os.DevNull, "true"); r.code != 0 {
		t.Skipf("STRACE MAY NOT TRACE HERE: nothing of the crash and failure matrix was tried: %v", r)
	}
}

// calls says which system calls a command makes: by name, how many the thread
// that makes most of them makes, and which of these concern the directory.
type calls struct {
	total map[string]int
	ours  map[string][]int // ordinals, rising
	paths []string         // of files in the directory that are touched
	locks []int            // ordinals of those calls of fcntl that lock
}

var (
	lineForm = regexp.MustCompile(`^(\d+) +([a-z0-9]+)\(`)
	pathForm = regexp.MustCompile(`[<"](/[^<>"]*)[>"]`)
)

// record runs a command under strace and collects its calls.
func record(t *testing.T, dir, stdin string, args ...string) calls {
	t.Helper()
	names := slices.Sorted(maps.Keys(faults))
	log := filepath.Join(t.TempDir(), "strace")
	r := run(t, stdin, "strace", append([]string{"-f", "-y", "-qq", "-o", log, "-e", "trace=?" + strings.Join(names, ",?"), program}, args...)...)
	if r.code != 0 {
		t.Fatalf("%q: %v", args, r)
	}
	return readCalls(t, log, dir)
}

// readCalls reads a log of strace; the calls on files in dir are ours.
func readCalls(t *testing.T, log, dir string) calls {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := calls{total: map[string]int{}, ours: map[string][]int{}}
	ordinals := map[string]int{} // by thread and call
	paths := map[string]bool{dir: true}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := lineForm.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		call := m[2]
		ordinals[m[1]+call]++
		n := ordinals[m[1]+call]
		if call == "fcntl" {
			if !strings.Contains(lines.Text(), "SETLK") {
				continue // it only asks
			}
			if !slices.Contains(c.locks, n) {
				c.locks = append(c.locks, n)
			}
		}
		c.total[call] = max(c.total[call], n)
		for _, p := range pathForm.FindAllStringSubmatch(lines.Text(), -1) {
			if strings.HasPrefix(p[1]+"/", dir+"/") && !strings.Contains(p[1], "/..") {
				paths[p[1]] = true
				if !slices.Contains(c.ours[call], n) {
					c.ours[call] = append(c.ours[call], n)
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, ours := range c.ours {
		slices.Sort(ours)
	}
	slices.Sort(c.locks)
	c.paths = slices.Sorted(maps.Keys(paths))
	return c
}

// point is one place at which a command is killed or a call fails.
type point struct {
	call   string
	when   string   // as strace has it: "3", or "3+" for the third and all later ones
	effect string   // "signal=KILL" or "error=EIO"
	paths  []string // only calls on these count; nil: all
}

func (p point) String() string { return fmt.Sprintf("%s %s when=%s", p.effect, p.call, p.when) }

// inject runs a command with one fault and reports whether that came to pass.
func (p point) inject(t *testing.T, stdin string, args ...string) (result, bool) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "strace")
	argv := []string{"-f", "-qq", "-o", log, "-e", "trace=" + p.call, "-e", "inject=" + p.call + ":" + p.effect + ":when=" + p.when}
	for _, path := range p.paths {
		argv = append(argv, "-P", path)
	}
	r := run(t, stdin, "strace", append(append(argv, program), args...)...)
	if p.effect == "signal=KILL" {
		return r, r.code == -1
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return r, strings.Contains(string(text), "(INJECTED)")
}

// killPoints returns the places to kill a command at: every call that changes
// something, whatever it is about.
func (c *calls) killPoints(atMost int) (points []point) {
	for _, call := range slices.Sorted(maps.Keys(c.total)) {
		if slices.Contains(onlyReads, call) {
			continue
		}
		all := make([]int, c.total[call])
		for i := range all {
			all[i] = i + 1
		}
		if call == "fcntl" {
			all = c.locks
		}
		for _, n := range spread(all, atMost) {
			points = append(points, point{call: call, when: fmt.Sprint(n), effect: "signal=KILL"})
		}
	}
	return points
}

// failurePoints returns the failures of every call that concerns the directory,
// once and from then on; of one system call at most 40 ordinals. A sample tries the first
// error at two places of each call, and the others at one. A quick run tries one error at
// one place of each call that changes something, and two syncs.
func (c *calls) failurePoints(atMost int) (points []point) {
	if atMost = min(atMost, 40); sample {
		atMost = 2
	}
	for _, call := range slices.Sorted(maps.Keys(c.ours)) {
		if !full && !sample {
			if slices.Contains(onlyReads, call) {
				continue
			}
			if atMost = 1; strings.HasSuffix(call, "sync") {
				atMost = 2 // pages, then the head
			}
		}
		for i, errno := range faults[call] {
			if i > 0 && !full && !sample {
				break
			}
			for j, n := range spread(c.ours[call], atMost) {
				if sample && i > 0 && j != i%2 && len(c.ours[call]) > 1 {
					continue
				}
				points = append(points,
					point{call: call, when: fmt.Sprint(n), effect: "error=" + errno},
					point{call: call, when: fmt.Sprintf("%d+", j+1), effect: "error=" + errno, paths: c.paths})
			}
		}
	}
	return points
}

// spread returns at most n elements of list, more of them near its ends, where
// commits begin and end.
func spread[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	var picked []T
	ends := n / 3
	picked = append(picked, list[:ends]...)
	middle := list[ends : len(list)-ends]
	step := max(1, len(middle)/(n-2*ends))
	for i := 0; i < len(middle); i += step {
		picked = append(picked, middle[i])
	}
	return append(picked, list[len(list)-ends:]...)
}
