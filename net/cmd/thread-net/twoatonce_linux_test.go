package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTwoAtOnce kills what runs commands at random moments, as often as THREAD_KILLS says, and
// starts it again on the same host. Each command holds a lock for as long as a process of it
// lives: no command begins next to one that a killed supervisor has left.
func TestTwoAtOnce(t *testing.T) {
	kills := 2
	if n, err := strconv.Atoi(os.Getenv("THREAD_KILLS")); err == nil {
		kills = n
	}
	for name, way := range map[string]struct {
		handler string   // "": the consumer is read by consume
		verb    []string // what is killed, and started again
		words   string   // a process with these words is killed in place of it; "": none
	}{
		"consume":                      {"", []string{"consume", "--consumer", "c", "--follow", "--max-attempts", "1000", "--backoff", "1ms", "--backoff-factor", "1", "--", "sh", "worker"}, ""},
		"serve":                        {"sh worker; thread-net consume --consumer c -- true", []string{"serve"}, ""},
		"consume in a handler":         {"thread-net consume --max-attempts 1000 --backoff 1ms --backoff-factor 1 -- sh worker", []string{"serve"}, "thread-net\x00consume"},
		"a handler that hides the end": {"thread-net consume --max-attempts 1000 --backoff 1ms --backoff-factor 1 -- sh worker; true", []string{"serve"}, "thread-net\x00consume"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFleet(t)
			dir := t.TempDir()
			worker := fmt.Sprintf("cd %s\nexec 9>>lock\nflock -n 9 || echo $$ >>overlaps\necho $$ >>begun\ns=0.05\ntest -e calm || s=5\nsleep $s\n:\n", dir)
			if err := os.WriteFile(filepath.Join(dir, "worker"), []byte(worker), 0o600); err != nil {
				t.Fatal(err)
			}
			if way.handler == "" {
				h.run("subscribe", "--consumer", "c", "--pull")
			} else {
				h.run("subscribe", "--consumer", "c", "--handler", "cd "+dir+"; "+way.handler)
			}
			start := func() *exec.Cmd {
				cmd := h.command(way.verb...)
				cmd.Dir, cmd.Stderr = dir, os.Stderr
				cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+dir)
				h.start(cmd)
				return cmd
			}
			end := func(cmd *exec.Cmd, s syscall.Signal) {
				_ = cmd.Process.Signal(s)
				_ = cmd.Wait()
			}
			begun := func() int {
				text, _ := os.ReadFile(filepath.Join(dir, "begun"))
				return bytes.Count(text, []byte("\n"))
			}
			cmd := start()
			for range kills {
				before := begun()
				for i := 0; begun() == before; i++ { // five failures in a row stop a handler until the next push
					if i%300 == 0 {
						h.push(1)
					}
					if i > 6000 {
						t.Fatal("no command begins")
					}
					time.Sleep(10 * time.Millisecond) // polls a file
				}
				time.Sleep(rand.N(60 * time.Millisecond))
				if list := processes(t, h.url, way.words); way.words != "" && len(list) > 0 {
					for _, pid := range list {
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
					continue
				}
				end(cmd, syscall.SIGKILL)
				h.expire()
				cmd = start()
			}
			if err := os.WriteFile(filepath.Join(dir, "calm"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			h.push(1)
			h.settled()
			end(cmd, syscall.SIGTERM)
			if text, err := os.ReadFile(filepath.Join(dir, "overlaps")); err == nil {
				t.Errorf("%d of %d commands began next to another one", bytes.Count(text, []byte("\n")), begun())
			}
			if info := h.run("info", "--json"); !strings.Contains(info, `"dead_count": 0`) {
				t.Errorf("dead letters: %s", info)
			}
			t.Logf("%d commands", begun())
		})
	}
}

// processes returns the processes of the thread whose command line has the words.
func processes(t *testing.T, url, words string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		env, _ := os.ReadFile(path)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if bytes.Contains(env, []byte("THREAD_DIR="+url)) && bytes.Contains(line, []byte(words)) && !bytes.HasPrefix(line, []byte("sh\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}
