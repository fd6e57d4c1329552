// Package thread_test holds what is true of the module as a whole.
package thread_test

import (
	"os/exec"
	"strings"
	"testing"
)

// permitted says what each package may import besides the standard library,
// from the ground floor up: imports point down only, and rooms on one floor do
// not know each other (docs/ARCHITECTURE.md). A module stands for all its
// packages.
//
// Do not extend a line to make a build pass. A new import is a decision about
// the design, or a wish for a dependency, and is made there first.
var permitted = map[string]string{
	"thread": "",

	"thread/event": "",
	"thread/lock":  "golang.org/x/sys",

	"thread/internal/durable":  "",
	"thread/internal/duration": "",

	"thread/internal/planted":  "", // nothing but in a build with that tag
	"thread/internal/target":   "golang.org/x/sys",
	"thread/internal/programs": "",

	"thread/filter":         "thread/event github.com/expr-lang/expr",
	"thread/index":          "thread/internal/planted go.etcd.io/bbolt",
	"thread/jsonlog":        "thread/event thread/internal/durable thread/internal/planted thread/lock gopkg.in/natefinch/lumberjack.v2",
	"thread/lane":           "",
	"thread/internal/watch": "github.com/fsnotify/fsnotify",

	"thread/engine": "thread/event thread/filter thread/index thread/internal/durable thread/internal/duration thread/internal/planted thread/internal/target thread/jsonlog thread/lock github.com/robfig/cron/v3 go.etcd.io/bbolt golang.org/x/sys",

	"thread/internal/dispatch": "thread/engine thread/event thread/filter thread/internal/planted thread/internal/programs thread/jsonlog thread/lock golang.org/x/sys gopkg.in/natefinch/lumberjack.v2",
	"thread/internal/consume":  "thread/engine thread/internal/watch",
	"thread/internal/trigger":  "thread/engine thread/event thread/filter thread/internal/watch github.com/expr-lang/expr",
	"thread/compat":            "thread/engine thread/event thread/filter thread/internal/durable thread/internal/target thread/internal/watch thread/jsonlog thread/lock modernc.org/sqlite",

	"thread/internal/serve": "thread/engine thread/event thread/internal/dispatch thread/internal/planted thread/internal/watch thread/lane thread/lock golang.org/x/sys",

	"thread/internal/cli": "thread/engine thread/event thread/filter thread/internal/dispatch thread/internal/duration thread/internal/programs thread/internal/target thread/jsonlog thread/lock github.com/alecthomas/kong golang.org/x/sys",

	"thread/internal/verb/core":   "thread/engine thread/event thread/filter thread/internal/cli thread/internal/consume thread/internal/dispatch thread/internal/duration thread/internal/target thread/internal/watch thread/jsonlog",
	"thread/internal/verb/sqlite": "thread/compat thread/engine thread/event thread/internal/cli thread/internal/durable thread/internal/target",
	"thread/internal/verb/serve":  "thread/event thread/internal/cli thread/internal/dispatch thread/internal/serve thread/internal/target thread/lane gopkg.in/natefinch/lumberjack.v2",

	"thread/cmd/thread":        "thread/internal/cli thread/internal/verb",
	"thread/cmd/thread-sqlite": "thread/internal/cli thread/internal/verb/sqlite",
	"thread/cmd/thread-serve":  "thread/internal/cli thread/internal/verb/serve",

	"thread/internal/survive":       "", // tests only
	"thread/internal/survive/guest": "golang.org/x/sys",

	"thread/tools/sbom": "",
}

func TestImportsPointDown(t *testing.T) {
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		pkg, imports, _ := strings.Cut(line, " ")
		allowed, known := permitted[pkg]
		if !known {
			t.Errorf("%s has no line in the table of permitted imports", pkg)
			continue
		}
		for _, imported := range strings.Fields(imports) {
			if !isStandard(imported) && !covered(imported, strings.Fields(allowed)) {
				t.Errorf("%s must not import %s", pkg, imported)
			}
		}
	}
}

// TestProgramsLink keeps test helpers out of ordinary files, and out of each program
// what its start-up and size must not pay for.
func TestProgramsLink(t *testing.T) {
	const tests = "testing pgregory.net/rapid github.com/rogpeppe/go-internal "
	for program, unwanted := range map[string]string{
		"thread":        "net/http thread/compat thread/internal/serve modernc.org",
		"thread-sqlite": "net/http thread/internal/serve",
		"thread-serve":  "thread/compat modernc.org",
	} {
		for _, dep := range goList(t, "-deps", "-f", "{{.ImportPath}}", "./cmd/"+program) {
			if covered(dep, strings.Fields(tests+unwanted)) {
				t.Errorf("%s links %s", program, dep)
			}
		}
	}
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) < 2 {
		t.Fatalf("go list %v printed %q", args, out)
	}
	return lines
}

// isStandard reports whether path is of the standard library: its first element
// has no dot, and it is not ours.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return first != "thread" && !strings.Contains(first, ".")
}

// covered reports whether path is one of prefixes or lies below one.
func covered(path string, prefixes []string) bool {
	for _, p := range prefixes {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}
