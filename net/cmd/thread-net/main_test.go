package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"thread/internal/cli"
	"thread/internal/verb/core"
	"thread/internal/verb/history"
	"thread/internal/verb/outbox"
	"thread/internal/verb/serve"
	"thread/internal/verb/sqlite"
	"thread/net/internal/verb"
	opener "thread/net/servers"
)

// envURL is a URL without its last parameter, thread, in a process whose directories
// stand for threads there.
const envURL = "THREAD_TEST_URL"

// envLease is how long turns last that a process takes, where a test does not wait for
// the environment of the program.
const envLease = "THREAD_TEST_LEASE"

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"thread": func() {
			os.Args = onServer(os.Args)
			cli.Main("thread", core.Verbs)
		},
		"thread-outbox":  func() { cli.Main("thread-outbox", outbox.Verbs) },
		"thread-serve":   func() { cli.Main("thread-serve", serve.Verbs) },
		"thread-history": func() { cli.Main("thread-history", history.Verbs) },
		"thread-sqlite":  func() { cli.Main("thread-sqlite", sqlite.Verbs) },
		"thread-net": func() {
			if d, err := time.ParseDuration(os.Getenv(envLease)); err == nil {
				opener.Lease = d
			}
			opener.Use()
			core.SetCheck(verb.Check)
			serve.SetRemote(verb.Remote)
			cli.Main("thread-net", core.Verbs, history.Verbs, outbox.Verbs, serve.Verbs, verb.Verbs)
		},
	})
}

// onServer is a command line whose directories are threads in PostgreSQL.
func onServer(args []string) []string {
	base := os.Getenv(envURL)
	if base == "" {
		return args
	}
	if dir := os.Getenv("THREAD_DIR"); dir != "" && !cli.IsURL(dir) {
		os.Setenv("THREAD_DIR", threadURL(base, dir))
	}
	args = append([]string{}, args...)
	for i, a := range args {
		switch {
		case a == "--":
			return args
		case a == "--thread" && i+1 < len(args), a == "init" && i == 1 && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			args[i+1] = threadURL(base, args[i+1])
		case strings.HasPrefix(a, "--thread="):
			args[i] = "--thread=" + threadURL(base, a[len("--thread="):])
		}
	}
	return args
}

func threadURL(base, dir string) string {
	if dir == "" || cli.IsURL(dir) {
		return dir
	}
	abs, _ := filepath.Abs(dir)
	return base + url.QueryEscape(abs)
}

// withoutThread takes what is not PostgreSQL's out of a URL.
func withoutThread(where string) (address, name, schema string) {
	u, err := url.Parse(where)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	name, schema = q.Get("thread"), q.Get("schema")
	q.Del("thread")
	q.Del("schema")
	u.RawQuery = q.Encode()
	return u.String(), name, schema
}
