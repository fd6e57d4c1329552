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

	"thread/internal/planted": "", // nothing but in a build with that tag

	"thread/filter":  "thread/event github.com/expr-lang/expr",
	"thread/index":   "thread/internal/planted go.etcd.io/bbolt",
	"thread/jsonlog": "thread/event thread/internal/planted thread/lock gopkg.in/natefinch/lumberjack.v2",
	"thread/lane":    "",
	"thread/watch":   "github.com/fsnotify/fsnotify",

	"thread/engine": "thread/event thread/internal/planted thread/filter thread/index thread/jsonlog thread/lock github.com/robfig/cron/v3 go.etcd.io/bbolt golang.org/x/sys",

	"thread/dispatch": "thread/engine thread/event thread/filter thread/internal/planted thread/jsonlog thread/lock golang.org/x/sys gopkg.in/natefinch/lumberjack.v2",
	"thread/consume":  "thread/engine thread/watch",
	"thread/compat":   "thread/engine thread/event thread/filter thread/jsonlog thread/lock thread/watch modernc.org/sqlite",

	"thread/serve": "thread/dispatch thread/engine thread/event thread/internal/planted thread/lane thread/lock thread/watch golang.org/x/sys",

	"thread/survive":       "", // tests only
	"thread/survive/guest": "golang.org/x/sys",

	"thread/tools/sbom": "",

	"thread/cmd/thread": "thread/compat thread/consume thread/dispatch thread/engine thread/event thread/filter thread/jsonlog thread/lane thread/lock thread/serve thread/watch github.com/alecthomas/kong golang.org/x/sys gopkg.in/natefinch/lumberjack.v2",
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

// TestProgramLinksNoTestCode keeps test helpers out of ordinary files, and the
// packages out of the program whose start-up and size nobody asked for.
func TestProgramLinksNoTestCode(t *testing.T) {
	unwanted := "testing net/http pgregory.net/rapid github.com/rogpeppe/go-internal"
	for _, dep := range goList(t, "-deps", "-f", "{{.ImportPath}}", "./cmd/thread") {
		if covered(dep, strings.Fields(unwanted)) {
			t.Errorf("the program links %s", dep)
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
