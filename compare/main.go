//go:build linux

// Command compare measures thread beside SQLite: driven from C (mattn/go-sqlite3,
// the one place of this repository with CGO), translated to Go (modernc.org/sqlite)
// and as the sqlite3 shell. What is compared runs in turn, so that a busy machine
// slows both; figures are medians, and a ratio is ours over theirs. It prints
// Markdown for docs/PERFORMANCE.md.
//
//	make compare                         1,000,000 events, some minutes
//	make compare COMPARE_EVENTS=20000    a minute
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
	"strconv"
	"strings"
	"syscall"

	"thread/engine"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == workerVerb {
		if err := work(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, "compare:", os.Args[2:], err)
			os.Exit(1)
		}
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

	self, thread, empty, measure, shell string // programs

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
	var err error
	if l.dir, err = os.MkdirTemp(os.Getenv("COMPARE_DIR"), "compare"); err != nil {
		return err
	}
	defer os.RemoveAll(l.dir)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"building", l.build},
		{"ingest", l.ingest},
		{"one push", l.push},
		{"pages", l.pages},
		{"drain", l.drain},
		{"in process", l.inProcess},
		{"many writers", l.crowd},
		{"beside a scan", l.besideScan},
		{"dispatch", l.dispatch},
		{"series", l.series},
		{"records", l.records},
		{"side by side", l.sideBySide},
	} {
		if only := os.Getenv("COMPARE_ONLY"); only != "" && only != step.what && step.what != "building" {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s …\n", step.what)
		syscall.Sync() // what the step before left unwritten is not this one's to pay
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
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
	l.thread, l.empty, l.measure = l.path("thread"), l.path("empty"), l.path("measure")
	for _, b := range []struct{ in, out, what string }{
		{strings.TrimSpace(string(root)), l.thread, "./cmd/thread"},
		{"", l.empty, l.path("empty.go")},
		{"", l.measure, "./measure"},
	} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", b.out, b.what)
		cmd.Dir = b.in
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
	}
	return nil
}

// run runs a program whose costs do not interest.
func run(stdin string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
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
