// Package scripttest has the commands that the transcripts of several programs use
// for tests, in addition to the commands of testscript.
package scripttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// Command is a command of a transcript.
type Command = func(ts *testscript.TestScript, neg bool, args []string)

// Commands returns refused, await and await-output, and with describe, which returns the state
// of all that is below some directories, snapshot and unchanged.
func Commands(describe func(ts *testscript.TestScript, dirs []string) string) map[string]Command {
	return map[string]Command{
		"refused":      refused,
		"await":        await,
		"await-output": awaitOutput,

		// snapshot file dir…: writes the state of the dirs into file.
		"snapshot": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < 2 {
				ts.Fatalf("usage: snapshot file dir...")
			}
			ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(describe(ts, args[1:])), 0o600))
		},
		// unchanged file dir…: compares with an earlier snapshot of the same dirs.
		"unchanged": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < 2 {
				ts.Fatalf("usage: unchanged file dir...")
			}
			if was, is := ts.ReadFile(args[0]), describe(ts, args[1:]); was != is {
				ts.Fatalf("changed; before:\n%safter:\n%s", was, is)
			}
		},
	}
}

var oneError = regexp.MustCompile(`^Error: .+ - .+$`)

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
		ts.Fatalf("exit code %d, want %d; stderr: %s", code, want, ts.ReadFile("stderr"))
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
	if !oneError.MatchString(line) {
		ts.Fatalf("not of the form \"Error: what - how to fix\": %q", line)
	}
}

// await file lines: waits, for at most 20 s, until the file has that many lines,
// and fails when it has more.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await file lines")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	Until(ts, func() error {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			ts.Fatalf("%v", err)
		}
		switch n := bytes.Count(data, []byte("\n")); {
		case n > want:
			ts.Fatalf("%s has %d lines, want %d:\n%s", args[0], n, want, data)
		case n < want:
			return fmt.Errorf("%s does not reach %d lines; it holds:\n%s", args[0], want, data)
		}
		return nil
	})
}

// awaitOutput TEXT command args…: runs the command, for at most 20 s, until it prints the
// text.
func awaitOutput(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await-output text command [args...]")
	}
	Until(ts, func() error {
		err := ts.Exec(args[1], args[2:]...)
		if out := ts.ReadFile("stdout"); err == nil && !strings.Contains(out, args[0]) {
			err = fmt.Errorf("%q is not in\n%s", args[0], out)
		}
		return err
	})
}

// Until calls f, for at most 20 s, until it returns nil.
func Until(ts *testscript.TestScript, f func() error) {
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
