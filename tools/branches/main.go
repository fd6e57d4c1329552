// Command branches runs tests with coverage, in the test binaries and in the programs
// that they start, and prints the blocks of some packages that nothing reached. It runs
// at the root of the module:
//
//	branches [-update] [-all] [-tolerate N] [TEST PACKAGE...]
//
// The packages are in rooms.txt, with the test packages that run, and with those that run
// with -all as well. reasons.txt lists at most 20 blocks that cannot be reached, with the
// reason. unreached.txt lists the other blocks that a run may not reach: it gets shorter,
// never longer. More than -tolerate blocks that are in neither list fail a run, after two
// more runs that do not reach them. -update writes unreached.txt after three runs, with -all of all tests once
// more; what only some of these runs reach is listed apart.
//
// The exit code is 0 when every unreached block is listed, 1 when one is not, and 2 for
// arguments or sources that cannot be tested.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"thread/tools/cover"
)

const (
	place      = "tools/branches"
	maxReasons = 20
	runs       = 3 // at most, until every block was reached that some run reaches
)

var errNew = errors.New("blocks that no test reaches are not listed - reach them by tests, delete them, or list them in " + place + "/reasons.txt")

// usageError ends a run with exit code 2.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("branches", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var o options
	flags.BoolVar(&o.update, "update", false, "write unreached.txt")
	flags.BoolVar(&o.all, "all", false, "run the tests of programs as well")
	flags.IntVar(&o.tolerate, "tolerate", 0, "how many blocks may be in neither list")
	err := flags.Parse(args)
	if err != nil {
		err = usagef("%w - usage: branches [-update] [-all] [-tolerate N] [TEST PACKAGE...]", err)
	} else {
		o.tests = flags.Args()
		err = measure(o, stdout)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "Error:", err)
	if errors.As(err, &usageError{}) {
		return 2
	}
	return 1
}

type options struct {
	update, all bool
	tolerate    int
	tests       []string
}

// measure runs the tests and compares what nothing reached with the lists.
func measure(o options, stdout io.Writer) error {
	r, err := readRooms()
	if err != nil {
		return err
	}
	if len(o.tests) == 0 {
		o.tests = r.near
	}
	var blocks []*block
	for range runs {
		if blocks, err = once(r.rooms, o.tests, blocks, stdout); err != nil {
			return err
		}
		l, err := readLists()
		if err != nil {
			return err
		}
		if _, unlisted := l.missing(blocks); !o.update && len(unlisted) <= o.tolerate {
			break
		}
	}
	if o.all {
		before := map[*block]int{}
		for _, b := range blocks {
			before[b], b.reached = b.reached, 0
		}
		if blocks, err = once(r.rooms, r.wide, blocks, stdout); err != nil {
			return err
		}
		for _, b := range blocks {
			b.wide, b.reached = b.reached > 0, before[b]
		}
	}
	return report(blocks, r.rooms, o, stdout)
}

// once runs the tests once and adds what they reached to blocks.
func once(rooms, tests []string, blocks []*block, stdout io.Writer) ([]*block, error) {
	dir, err := os.MkdirTemp("", "branches")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	now, err := runTests(dir, rooms, tests, stdout)
	if err != nil {
		return nil, err
	}
	return add(now, rooms, blocks)
}

type roomTable struct{ rooms, near, wide []string }

// readRooms reads rooms.txt: packages or files to look at, behind "tests" the packages
// whose tests run, and behind "programs" those whose tests run with -all.
func readRooms() (r roomTable, err error) {
	text, err := os.ReadFile(place + "/rooms.txt")
	if err != nil {
		return r, usagef("%w - run branches at the root of the module", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case fields[0] == "tests":
			r.near = append(r.near, fields[1:]...)
		case fields[0] == "programs":
			r.wide = append(r.wide, fields[1:]...)
		default:
			r.rooms = append(r.rooms, fields...)
		}
	}
	return r, nil
}

// runTests returns the blocks of everything that ran.
func runTests(dir string, rooms, tests []string, stdout io.Writer) ([]*cover.Block, error) {
	packages, err := cover.Packages(rooms)
	if err != nil {
		return nil, usagef("%w - mend it first", err)
	}
	flags, err := cover.Flags(dir, packages)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := errors.Join(os.Chmod(dir, 0o755), cover.Data(data)); err != nil {
		return nil, err
	}
	// go test sets GOCOVERDIR to a directory that it removes.
	cmd := exec.Command("go", append(append([]string{"test", "-p", "1", "-count", "1", "-exec", "env GOCOVERDIR=" + data}, tests...), "-args", "-test.gocoverdir="+data)...)
	cmd.Env = append(os.Environ(), "GOFLAGS="+flags)
	out, testErr := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "--- FAIL") || strings.HasPrefix(line, "FAIL\t") {
			fmt.Fprint(stdout, "note: ", line) // make test decides about these
		}
	}
	if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) {
		return nil, usagef("the tests do not build: %s - mend the build first", cover.FirstLine(string(out)))
	}
	blocks, err := cover.Read(data)
	if err != nil {
		return nil, usagef("%w - nothing ran: %s", errors.Join(err, testErr), cover.FirstLine(string(out)))
	}
	return blocks, nil
}

// report prints the unreached blocks that are in neither list, and a table.
func report(blocks []*block, rooms []string, o options, stdout io.Writer) error {
	l, err := readLists()
	if err != nil {
		return err
	}
	unreached, unlisted := l.missing(blocks)
	if !o.update {
		for _, b := range unlisted {
			fmt.Fprintf(stdout, "unreached %s:%d %s\n", b.Path, b.Line, b.key)
		}
	}
	for _, room := range rooms {
		total, reached, wide := 0, 0, 0
		for _, b := range blocks {
			if !within(b.Path, []string{room}) {
				continue
			}
			total += b.Statements
			if b.reached > 0 {
				reached += b.Statements
			}
			if b.reached > 0 || b.wide {
				wide += b.Statements
			}
		}
		fmt.Fprintf(stdout, "%-28s %5d statements, %5d reached (%.1f %%)", room, total, reached, 100*float64(reached)/float64(max(total, 1)))
		if o.all {
			fmt.Fprintf(stdout, ", with the programs %d (%.1f %%)", wide, 100*float64(wide)/float64(max(total, 1)))
		}
		fmt.Fprintln(stdout)
	}
	fmt.Fprintf(stdout, "%d blocks are unreached\n", len(unreached))
	if o.update {
		return update(blocks, l.most)
	}
	if len(unlisted) > o.tolerate {
		return errNew
	}
	return nil
}
