package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"thread/internal/scripttest"
	"thread/net/internal/pgtest"
)

// TestTranscripts plays the transcripts of cmd/thread with threads in PostgreSQL in place
// of directories, except for those in elsewhere.
func TestTranscripts(t *testing.T) {
	base := pgtest.Schema(t)
	all, err := filepath.Glob("../../../cmd/thread/testdata/script/*.txt")
	if err != nil || len(all) < 40 {
		t.Fatalf("%d transcripts: %v", len(all), err)
	}
	var files []string
	for _, f := range all {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		if elsewhere[name] == "" || os.Getenv("THREAD_ELSEWHERE") != "" {
			files = append(files, f)
		}
	}
	for name := range elsewhere {
		if _, err := os.Stat("../../../cmd/thread/testdata/script/" + name + ".txt"); err != nil {
			t.Error(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(cond string) (bool, error) {
			if cond != "directory" {
				return false, fmt.Errorf("the condition %q is unknown", cond)
			}
			return false, nil // lines about the files of a thread
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("THREAD_DISPATCH", "none")
			env.Setenv("PGPASSWORD", os.Getenv("PGPASSWORD"))
			env.Setenv(envURL, base)
			env.Setenv("NL", "\n")
			env.Setenv("ESC", "\x1b")
			return os.MkdirAll(filepath.Join(env.WorkDir, "home"), 0o700)
		},
		Cmds: commands,
	})
}

var commands = scripttest.Commands(describe)

// TestScripts plays the transcripts of testdata, about what is different.
func TestScripts(t *testing.T) {
	base := pgtest.Schema(t)
	mirror := strings.TrimSuffix(pgtest.Schema(t), "&thread=") // of a history
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("PGPASSWORD", os.Getenv("PGPASSWORD"))
			env.Setenv("URL", base)
			env.Setenv("MIRROR", mirror)
			return os.MkdirAll(filepath.Join(env.WorkDir, "home"), 0o700)
		},
		Cmds: commands,
	})
}
