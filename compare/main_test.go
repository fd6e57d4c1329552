//go:build linux

// This test binary measures thread next to SQLite: driven from C (mattn/go-sqlite3,
// the one place of this repository with CGO), translated to Go (modernc.org/sqlite)
// and as the sqlite3 shell. What is compared runs in turn, so that a busy machine
// slows both; figures are medians, and a ratio is ours over theirs. It prints
// Markdown for docs/reference/performance.md.
//
//	make compare                         1,000,000 events, some minutes
//	make compare COMPARE_EVENTS=20000    a minute
//
// COMPARE_ROUNDS is how often what takes milliseconds is done: 100 times, or 30 with
// less than 100,000 events. A few are enough to see that all of it still runs.
//
// COMPARE_ONLY is the name of the one step that is carried out, such as series or
// ingest. COMPARE_DIR is where it works; the system's temporary directory without it. It
// should be on the disk that matters.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"thread/engine"
)

// TestMain measures where COMPARE_EVENTS is set, which make compare does.
func TestMain(*testing.M) {
	if len(os.Args) > 2 && os.Args[1] == workerVerb {
		if err := work(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, "compare:", os.Args[2:], err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv("COMPARE_EVENTS") == "" {
		return
	}
	if err := compare(); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// lab is where and what is measured.
type lab struct {
	dir    string
	events int // in the large thread and in the large SQLite database
	rounds int // of what takes milliseconds

	self, thread, serve, empty, measure, stamp, shell string // programs

	lines             string // NDJSON of the events
	big, few          string // threads of events and of 1,000 events
	sqliteBig, sqlite string // databases of events and of no events
	rows              []row
}

func compare() error {
	l := &lab{events: million, rounds: 100}
	if s := os.Getenv("COMPARE_EVENTS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 2000 {
			return fmt.Errorf("COMPARE_EVENTS %q is not a number from 2000", s)
		}
		l.events = n
	}
	if l.events < 100_000 {
		l.rounds = 30
	}
	if s := os.Getenv("COMPARE_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 2 {
			return fmt.Errorf("COMPARE_ROUNDS %q is not a number from 2", s)
		}
		l.rounds = n
	}
	var err error
	if l.dir, err = os.MkdirTemp(os.Getenv("COMPARE_DIR"), "compare"); err != nil {
		return err
	}
	defer os.RemoveAll(l.dir)
	var only []string
	if s := os.Getenv("COMPARE_ONLY"); s != "" {
		only = strings.Split(s, ",")
	}
	known := make(map[string]bool)
	fmt.Fprintln(os.Stderr, "building …")
	if err := l.build(); err != nil {
		return fmt.Errorf("building: %w", err)
	}
	for _, step := range []struct {
		what  string
		reads bool // the threads and databases that ingest makes
		do    func() error
	}{
		{"ingest", false, l.ingest},
		{"one push", true, l.push},
		{"flash", false, l.flash},
		{"large events", true, l.largeEvents},
		{"pages", true, l.pages},
		{"drain", true, l.drain},
		{"in process", true, l.inProcess},
		{"many writers", true, l.crowd},
		{"next to a scan", true, l.besideScan},
		{"wake-up", false, l.wakeUp},
		{"dispatch", true, l.dispatch},
		{"series", false, l.series},
		{"records", false, l.records},
		{"jobs", false, l.jobs},
		{"side by side", false, l.sideBySide},
	} {
		known[step.what] = true
		if only != nil && !slices.Contains(only, step.what) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s …\n", step.what)
		if step.reads && l.big == "" {
			if err := l.ingest(); err != nil {
				return fmt.Errorf("ingest: %w", err)
			}
			l.rows = nil
		}
		syscall.Sync() // what the step before left unwritten is not this one's to pay
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	for _, s := range only {
		if !known[s] {
			return fmt.Errorf("COMPARE_ONLY: there is no step %q", s)
		}
	}
	return l.print(os.Stdout)
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

// build builds the programs, from the directory of this module.
func (l *lab) build() (err error) {
	if l.self, err = os.Executable(); err != nil {
		return err
	}
	if l.shell, err = exec.LookPath("sqlite3"); err != nil {
		return err
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", strings.TrimSuffix(reflect.TypeFor[engine.Thread]().PkgPath(), "/engine")).Output()
	if err != nil {
		return fmt.Errorf("run this in the directory compare: %w", err)
	}
	if err := os.WriteFile(l.path("empty.go"), []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return err
	}
	module := strings.TrimSpace(string(root))
	l.thread, l.serve, l.empty, l.measure, l.stamp = l.path("thread"), l.path("thread-serve"), l.path("empty"), l.path("measure"), l.path("stamp")
	if err := os.WriteFile(l.path("stamp.c"), []byte(stampSource), 0o600); err != nil {
		return err
	}
	// As the Makefile has it, which exports GOEXPERIMENT, too.
	shipped := []string{"go", "build", "-trimpath", "-ldflags=-s -w -funcalign=4", "-o"}
	for _, b := range []struct {
		in, out string
		args    []string
	}{
		{module, l.thread, append(shipped, l.thread, "./cmd/thread")},
		{module, l.serve, append(shipped, l.serve, "./cmd/thread-serve")},
		{"", l.empty, append(shipped, l.empty, l.path("empty.go"))},
		{"", l.measure, append(shipped, l.measure, "./measure")},
		{"", l.stamp, []string{"cc", "-O2", "-static", "-s", "-o", l.stamp, l.path("stamp.c")}},
	} {
		cmd := exec.Command(b.args[0], b.args[1:]...)
		cmd.Dir = b.in
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
		if err := asAfterBoot(b.out); err != nil {
			return err
		}
	}
	return nil
}

// asAfterBoot writes a program to the disk and has the kernel forget its pages, so that
// the first run loads it as the first one after a boot does: page by page. Pages that
// were written or copied may lie in larger folios, which saves a program of 6 MB 0.3 ms
// of page faults at each start, and would make a figure depend on how the file came to
// be there.
func asAfterBoot(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// run runs a program whose costs do not interest.
func run(stdin string, args ...string) error { return runWith(nil, stdin, args...) }

// runWith is run with an environment. With nil it is the one of this process.
func runWith(env []string, stdin string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	if stdin != "" {
		f, err := os.Open(stdin)
		if err != nil {
			return err
		}
		defer f.Close()
		cmd.Stdin = f
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", args, err, out)
	}
	return nil
}
