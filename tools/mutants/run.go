package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// verdict is what tests make of a mutant.
type verdict int

const (
	noticed  verdict = iota
	survived         // every test passed
	unbuilt          // the compiler rejected it
)

// bench runs tests on mutants of one module.
type bench struct {
	root    string
	scratch string
}

// tests is one line of the table of rooms: a package, and which of its tests notice a
// mutant.
type tests struct {
	pkg     string
	short   bool
	pattern string        // of -run; "": all
	limit   time.Duration // of a run
}

func parseTests(fields []string) *tests {
	t := &tests{pkg: fields[0]}
	for i := 1; i < len(fields); i++ {
		switch {
		case fields[i] == "-short":
			t.short = true
		case fields[i] == "-run" && i+1 < len(fields):
			i++
			t.pattern = fields[i]
		default:
			panic("rooms.txt: " + strings.Join(fields, " "))
		}
	}
	return t
}

func (t *tests) binaryFlags() []string {
	if t.short {
		return []string{"-test.short"}
	}
	return nil
}

// try returns what the tests that reach the mutant make of it. Tests that are not done
// within their limit have noticed it.
func (b *bench) try(m *mutant, list []*test, n int) (verdict, error) {
	name := strconv.Itoa(n)
	overlay, err := b.plant(m, name)
	if err != nil {
		return 0, err
	}
	for _, t := range plan(m, list) {
		out, err := b.goTest(t, name, overlay)
		if failedBuild(out) {
			return unbuilt, nil
		}
		if err != nil {
			return noticed, nil
		}
	}
	return survived, nil
}

// plant writes the changed file and returns the path of the list for -overlay.
func (b *bench) plant(m *mutant, name string) (overlay string, err error) {
	path := filepath.Join(b.root, m.path)
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(b.scratch, name+".go")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(b.scratch, name+".json")
	return overlay, errors.Join(os.WriteFile(changed, m.apply(source), 0o600), os.WriteFile(overlay, list, 0o600))
}

// goTest runs go test. The overlay is in GOFLAGS: programs that the tests build have
// the mutant as well. The tests keep their temporary files in a directory that is
// removed, and processes that they leave behind are ended.
func (b *bench) goTest(t tests, name, overlay string) ([]byte, error) {
	temp := filepath.Join(b.scratch, name)
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	defer endProcesses("TMPDIR=" + temp)
	args := []string{"test", "-count", "1", "-failfast", "-vet", "off", "-timeout", t.limit.String(), "-run", t.pattern}
	if t.short {
		args = append(args, "-short")
	}
	cmd := exec.Command("go", append(args, t.pkg)...)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	if os.Getenv("GOTMPDIR") == "" {
		cmd.Env = append(cmd.Env, "GOTMPDIR="+b.scratch)
	}
	cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	cmd.WaitDelay = 5 * time.Second // for output that a process left behind holds open
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return out, err
}

// endProcesses kills the processes that have the variable in their environment. It
// needs /proc.
func endProcesses(variable string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		environment, _ := os.ReadFile(path)
		if !bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+variable+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func failedBuild(out []byte) bool {
	return bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]"))
}

// firstProblem returns the line of go's output that says most.
func firstProblem(out []byte) string {
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "ok ") {
			return line
		}
	}
	return fmt.Sprintf("go test printed %q", out)
}
