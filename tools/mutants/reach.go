package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"thread/tools/cover"
)

// test is a test function of one line of the table of rooms.
type test struct {
	name    string
	line    *tests
	took    time.Duration
	reached map[string][][2]int // by path, from the first line of a block to its last
}

// reaches reports whether the test runs the line, in a block, or any line of the function.
func (t *test) reaches(m *mutant, inBlock bool) bool {
	return slices.ContainsFunc(t.reached[m.path], func(b [2]int) bool {
		if inBlock {
			return b[0] <= m.line && m.line <= b[1]
		}
		return b[0] <= m.last && m.first <= b[1]
	})
}

// measureAll fills in which tests of the rooms reach what.
func (b *bench) measureAll(list []*room) error {
	var names []string
	for _, r := range list {
		names = append(names, r.name)
	}
	packages, err := cover.Packages(names)
	if err != nil {
		return usagef("%w - mend it first", err)
	}
	measured := map[tests][]*test{}
	for _, r := range list {
		for _, line := range r.lines {
			found, ok := measured[*line]
			if !ok {
				if found, err = b.measure(packages, line); err != nil {
					return err
				}
				measured[*line] = found
			}
			r.tests = append(r.tests, found...)
		}
	}
	return nil
}

// measure runs each test of the line alone and returns what it reaches of the packages.
// A test that fails is an error: the tests must pass without a mutant.
func (b *bench) measure(packages []string, line *tests) (found []*test, err error) {
	dir, err := os.MkdirTemp(b.scratch, "")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	flags, err := cover.Flags(dir, packages)
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(dir, "tests")
	build := exec.Command("go", "test", "-c", "-vet", "off", "-o", binary, line.pkg)
	build.Dir = b.root
	build.Env = append(os.Environ(), "GOFLAGS="+flags)
	if out, err := build.CombinedOutput(); err != nil {
		return nil, usagef("%s does not build: %s - mend the build first", line.pkg, firstProblem(out))
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, usagef("%s has no tests - write some", line.pkg)
	}
	list := exec.Command(binary, "-test.list", cmp.Or(line.pattern, "."))
	list.Dir = filepath.Join(b.root, line.pkg)
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("the tests of %s: %w", line.pkg, err)
	}
	for _, name := range strings.Fields(string(names)) {
		if !strings.HasPrefix(name, "Test") {
			continue
		}
		t, err := b.alone(binary, dir, flags, name, line)
		if err != nil {
			return nil, err
		}
		found = append(found, t)
	}
	return found, nil
}

// alone runs one test.
func (b *bench) alone(binary, dir, flags, name string, line *tests) (*test, error) {
	data, temp := filepath.Join(dir, name), filepath.Join(b.scratch, "t")
	if err := errors.Join(os.Mkdir(temp, 0o700), os.Chmod(b.scratch, 0o755), os.Chmod(dir, 0o755), cover.Data(data)); err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	defer endProcesses("TMPDIR=" + temp)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	args := append([]string{"-test.run", "^" + name + "$", "-test.gocoverdir", data}, line.binaryFlags()...)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(b.root, line.pkg)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "GOCOVERDIR="+data, "GOFLAGS="+flags)
	cmd.WaitDelay = 5 * time.Second
	begun := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, usagef("the tests of %s fail without a mutant: %s - mend them first", line.pkg, firstProblem(out))
	}
	t := &test{name: name, line: line, took: time.Since(begun), reached: map[string][][2]int{}}
	blocks, err := cover.Read(data)
	if err != nil {
		return nil, err
	}
	for _, block := range blocks {
		if block.Reached {
			t.reached[block.Path] = append(t.reached[block.Path], [2]int{block.Line, block.End})
		}
	}
	return t, os.RemoveAll(data)
}

// quickLimit bounds the time of the tests that try a mutant first.
const quickLimit = 3 * time.Second

// plan returns the tests that reach the mutant in runs of go test: quick ones first, then
// the rest of each line. Where no block has the mutant, these are the tests that reach its
// function.
func plan(m *mutant, list []*test) (runs []tests) {
	var reaching []*test
	if !m.ofCase {
		reaching = reachedBy(m, list, true)
	}
	if len(reaching) == 0 {
		reaching = reachedBy(m, list, false)
	}
	slices.SortStableFunc(reaching, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	add := func(line *tests, names []string) {
		if len(names) > 0 {
			run := *line
			run.pattern, run.limit = "^("+strings.Join(names, "|")+")$", 10*time.Second
			for _, t := range reaching {
				if t.line == line && slices.Contains(names, t.name) {
					run.limit += 4 * t.took.Round(time.Second)
				}
			}
			runs = append(runs, run)
		}
	}
	first, rest := map[*tests][]string{}, map[*tests][]string{}
	var lines []*tests
	var sum time.Duration
	for _, t := range reaching {
		if !slices.Contains(lines, t.line) {
			lines = append(lines, t.line)
		}
		names := rest
		if sum += t.took; sum <= quickLimit {
			names = first
		}
		names[t.line] = append(names[t.line], t.name)
	}
	for _, names := range []map[*tests][]string{first, rest} {
		for _, line := range lines {
			add(line, names[line])
		}
	}
	return runs
}

func reachedBy(m *mutant, list []*test, inBlock bool) (reaching []*test) {
	for _, t := range list {
		if t.reaches(m, inBlock) {
			reaching = append(reaching, t)
		}
	}
	return reaching
}
