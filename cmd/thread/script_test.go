package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"thread/internal/cli"
	"thread/internal/verb/core"
	"thread/internal/verb/history"
	"thread/internal/verb/outbox"
	"thread/internal/verb/serve"
	"thread/internal/verb/sqlite"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expected outputs in the scripts")

// whole is the program with every verb linked in.
var whole = cli.NewProgram("thread", core.Verbs, outbox.Verbs, sqlite.Verbs, history.Verbs, serve.Verbs)

func allVerbs() (all []*cli.Verb) {
	for i := range whole.Entries {
		if whole.Entries[i].Build != nil { // not of thread-bridge, which is in a module of its own
			all = append(all, whole.Entries[i].Build())
		}
	}
	return all
}

// bundledEnv makes the transcripts play on the single file that has every verb, in
// place of the programs beside each other.
const bundledEnv = "THREAD_TEST_BUNDLED"

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"thread": func() {
			if os.Getenv(bundledEnv) != "" {
				cli.Main("thread", core.Verbs, outbox.Verbs, sqlite.Verbs, history.Verbs, serve.Verbs)
			}
			cli.Main("thread", core.Verbs)
		},
		"thread-history": func() { cli.Main("thread-history", history.Verbs) },
		"thread-sqlite":  func() { cli.Main("thread-sqlite", sqlite.Verbs) },
		"thread-serve":   func() { cli.Main("thread-serve", serve.Verbs) },
		"thread-outbox":  func() { cli.Main("thread-outbox", outbox.Verbs) },
	})
}

// TestElsewhere: what thread lists of other programs' verbs is what they say, and a
// word that stands for a group is one.
func TestElsewhere(t *testing.T) {
	verbs := map[string]*cli.Verb{}
	for _, v := range allVerbs() {
		verbs[v.Name] = v
	}
	for _, e := range cli.NewProgram("thread", core.Verbs).Entries {
		if e.Program == "thread-bridge" {
			continue // its own module compares it
		}
		listed, v, group := e.Show(), verbs[e.Name], 0
		for name := range verbs {
			if strings.HasPrefix(name, e.Name+" ") {
				delete(verbs, name)
				group++
			}
		}
		switch {
		case v != nil && (listed.Name != v.Name || listed.Args != v.Args || listed.Summary != v.Summary):
			t.Errorf("thread lists %s %s: %s; its program says %s %s: %s", listed.Name, listed.Args, listed.Summary, v.Name, v.Args, v.Summary)
		case v == nil && group == 0:
			t.Errorf("thread lists %s, which no program has", e.Name)
		}
		delete(verbs, e.Name)
	}
	for name := range verbs {
		t.Errorf("thread does not list %s", name)
	}
}

// TestScripts plays the transcripts of testdata/script, one per topic. In them
// pushes start no handlers unless the script says otherwise.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("THREAD_DISPATCH", "none")
			env.Setenv(bundledEnv, os.Getenv(bundledEnv))
			env.Setenv("NL", "\n") // a script's line cannot hold these
			env.Setenv("ESC", "\x1b")
			return os.MkdirAll(filepath.Join(env.WorkDir, "home"), 0o700)
		},
		Condition: func(cond string) (bool, error) {
			if cond == "mount" { // a file system of its own can be mounted
				return exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "none", os.TempDir()).Run() == nil, nil
			}
			if cond == "bundled" {
				return os.Getenv(bundledEnv) != "", nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"refused":   refused,
			"snapshot":  snapshot,
			"unchanged": unchanged,
			"await":     await,

			"clock-ahead": useAhead,
			"signal":      signalBackground,
			"await-serve": awaitServe,
			"await-log":   awaitLog,
		},
	})
}

// refused CODE command args…: the command ends with CODE, prints nothing on
// stdout, and on stderr exactly one line, `Error: <what> - <how to fix>` or with
// --json an object with error and suggestion.
func refused(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refused code command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("stdout of a refused command: %q", out)
	}
	line, ended := strings.CutSuffix(ts.ReadFile("stderr"), "\n")
	if !ended || strings.Contains(line, "\n") {
		ts.Fatalf("stderr is not one line: %q", line)
	}
	if strings.HasPrefix(line, "{") {
		var answer struct{ Error, Suggestion string }
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&answer); err != nil || answer.Error == "" || answer.Suggestion == "" {
			ts.Fatalf("not an error in JSON: %q (%v)", line, err)
		}
		return
	}
	if !regexp.MustCompile(`^Error: .+ - .+$`).MatchString(line) {
		ts.Fatalf("not of the form \"Error: what - how to fix\": %q", line)
	}
}

// snapshot file dir…: writes names, kinds, modes, sizes and contents of all that
// is below each dir into file.
func snapshot(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: snapshot file dir...")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(describe(ts, args[1:])), 0o600))
}

// unchanged file dir…: compares with an earlier snapshot of the same dirs.
func unchanged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: unchanged file dir...")
	}
	if was, is := ts.ReadFile(args[0]), describe(ts, args[1:]); was != is {
		ts.Fatalf("changed on disk; before:\n%safter:\n%s", was, is)
	}
}

func describe(ts *testscript.TestScript, dirs []string) string {
	var b bytes.Buffer
	for _, dir := range dirs {
		err := filepath.WalkDir(ts.MkAbs(dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%s %v", path, info.Mode())
			if info.Mode().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				fmt.Fprintf(&b, " %d %x", len(data), sha256.Sum256(data))
			}
			b.WriteByte('\n')
			return nil
		})
		ts.Check(err)
	}
	return b.String()
}

// await file lines: waits, for at most 20 s, until the file has that many lines,
// and fails when it has more.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await file lines")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			ts.Fatalf("%v", err)
		}
		switch n := bytes.Count(data, []byte("\n")); {
		case n == want:
			return
		case n > want:
			ts.Fatalf("%s has %d lines, want %d:\n%s", args[0], n, want, data)
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("%s does not reach %d lines; it holds:\n%s", args[0], want, data)
		}
	}
}

// signalBackground NAME: sends the signal to the command in the background.
func signalBackground(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || len(ts.BackgroundCmds()) != 1 {
		ts.Fatalf("usage: signal name, with one command in the background")
	}
	ts.Check(exec.Command("kill", "-"+args[0], strconv.Itoa(ts.BackgroundCmds()[0].Process.Pid)).Run())
}

// awaitServe DIR: waits, for at most 20 s, until a thread serve answers for it.
func awaitServe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await-serve dir")
	}
	repeat(ts, func() error { return ts.Exec("thread", "lanes", "--thread", args[0]) })
}

// awaitLog FILE TEXT: waits, for at most 20 s, until the file holds the text.
func awaitLog(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await-log file text")
	}
	repeat(ts, func() error {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && !bytes.Contains(data, []byte(args[1])) {
			err = fmt.Errorf("%s does not hold %q:\n%s", args[0], args[1], data)
		}
		return err
	})
}

// repeat calls f until it returns nil.
func repeat(ts *testscript.TestScript, f func() error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for err := f(); err != nil; err = f() {
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("%v", err)
		}
	}
}
