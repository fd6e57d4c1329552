package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"thread/internal/cli"
	"thread/internal/scripttest"
	"thread/internal/verb/core"
	"thread/internal/verb/history"
	"thread/internal/verb/outbox"
	"thread/internal/verb/serve"
	"thread/internal/verb/sqlite"
)

var update = flag.Bool("update", false, "rewrite the expected outputs in the scripts")

// whole is the program with every verb linked in.
var whole = cli.NewProgram("thread", core.Verbs, outbox.Verbs, sqlite.Verbs, history.Verbs, serve.Verbs)

func allVerbs() (all []*cli.Verb) {
	for i := range whole.Entries {
		if whole.Entries[i].Verb != nil { // not of thread-bridge, which is in a separate module
			all = append(all, whole.Entries[i].Verb)
		}
	}
	return all
}

// bundledEnv makes the transcripts play on the single file that has every verb, in
// place of the programs next to each other.
const bundledEnv = "THREAD_TEST_BUNDLED"

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"thread": func() {
			if os.Getenv(bundledEnv) != "" {
				cli.Main("thread", core.Verbs, outbox.Verbs, sqlite.Verbs, history.Verbs, serve.Verbs)
			}
			cli.Main("thread", core.Verbs)
		},
		"await-rest":     func() { awaitRest(os.Args[1]) },
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
	commands := scripttest.Commands(describe)
	maps.Copy(commands, map[string]scripttest.Command{
		"clock-ahead": useAhead,
		"signal":      signalBackground,
		"await-serve": awaitServe,
		"await-log":   awaitLog,
	})
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("THREAD_DISPATCH", "none")
			env.Setenv(bundledEnv, os.Getenv(bundledEnv))
			env.Setenv("THREAD_QUICK_PARSER", os.Getenv("THREAD_QUICK_PARSER"))
			env.Setenv("NL", "\n") // a script's line cannot hold these
			env.Setenv("ESC", "\x1b")
			env.Defer(func() { awaitRest(env.WorkDir) })
			return os.MkdirAll(filepath.Join(env.WorkDir, "home"), 0o700)
		},
		Condition: func(cond string) (bool, error) {
			if cond == "mount" { // a separate file system can be mounted
				return exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "none", os.TempDir()).Run() == nil, nil
			}
			if cond == "directory" { // lines about the files of a thread
				return true, nil
			}
			if cond == "bundled" {
				return os.Getenv(bundledEnv) != "", nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: commands,
	})
}

// awaitRest waits until no process supervises a thread in dir any more, so that it can be
// deleted.
func awaitRest(dir string) {
	for end := time.Now().Add(time.Minute); atWork(dir) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond) // nothing tells of the end of others' processes
	}
}

// atWork reports whether a process runs handlers of a thread below the directory. One
// that waits for what is scheduled has gone to / and may wait for hours.
func atWork(dir string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		text, _ := os.ReadFile(path)
		args := strings.Split(string(text), "\x00")
		cwd, _ := os.Readlink(filepath.Join(filepath.Dir(path), "cwd"))
		if len(args) > 2 && args[1] == "supervise" && cwd != "/" && strings.Contains(string(text), "\x00"+dir+"/") {
			return true
		}
	}
	return false
}

// describe returns names, kinds, modes, sizes and contents of all that is below each dir.
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
	scripttest.Until(ts, func() error { return ts.Exec("thread", "lanes", "--thread", args[0]) })
}

// awaitLog FILE TEXT: waits, for at most 20 s, until the file holds the text.
func awaitLog(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await-log file text")
	}
	scripttest.Until(ts, func() error {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && !bytes.Contains(data, []byte(args[1])) {
			err = fmt.Errorf("%s does not hold %q:\n%s", args[0], args[1], data)
		}
		return err
	})
}
