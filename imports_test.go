// Package thread_test holds what is true of the module as a whole.
package thread_test

import (
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// permitted says what each package may import in addition to the standard library,
// from the ground floor up: imports point down only, and packages on one floor
// do not know each other (docs/ARCHITECTURE.md). A module stands for all its
// packages.
//
// Do not extend a line to make a build pass. A new import is a decision about
// the design, or a wish for a dependency, and is made there first.
var permitted = map[string]string{
	"thread": "",

	"thread/event": "thread/internal/similar",
	"thread/lock":  "golang.org/x/sys",

	"thread/internal/durable":  "",
	"thread/internal/duration": "",
	"thread/internal/progress": "",
	"thread/internal/redact":   "",
	"thread/internal/signed":   "",
	"thread/internal/similar":  "",

	"thread/internal/bugs":       "",                                       // for tests only
	"thread/internal/testcert":   "",                                       // for tests only
	"thread/internal/agentday":   "github.com/modelcontextprotocol/go-sdk", // for tests only
	"thread/internal/floods":     "",                                       // for tests only
	"thread/internal/scripttest": "github.com/rogpeppe/go-internal",        // for tests only
	"thread/internal/faults":     "golang.org/x/sys",                       // for tests only
	"thread/internal/target":     "golang.org/x/sys",
	"thread/internal/pipe":       "",
	"thread/internal/command":    "thread/internal/pipe thread/lock golang.org/x/sys",
	"thread/internal/programs":   "",
	"thread/internal/lanes":      "",
	"thread/internal/apptable":   "",

	"thread/filter":                  "thread/event thread/filter/internal/like thread/filter/internal/sqldate thread/filter/internal/sqljson thread/filter/internal/sqltext github.com/expr-lang/expr",
	"thread/filter/internal/like":    "thread/filter/internal/sqltext",
	"thread/filter/internal/sqldate": "thread/filter/internal/sqltext",
	"thread/filter/internal/sqljson": "thread/filter/internal/sqltext",
	"thread/filter/internal/sqltext": "",
	"thread/index":                   "go.etcd.io/bbolt",
	"thread/jsonlog":                 "thread/event thread/internal/durable thread/internal/redact thread/lock gopkg.in/natefinch/lumberjack.v2",
	"thread/lane":                    "thread/internal/lanes",
	"thread/internal/watch":          "github.com/fsnotify/fsnotify",

	"thread/internal/store":              "thread/event thread/filter thread/index thread/internal/store/rec",
	"thread/internal/store/rec":          "thread/index",
	"thread/internal/store/storetest":    "thread/event thread/filter thread/internal/store", // tests only
	"thread/internal/store/bolt/disk":    "thread/event thread/index thread/internal/store thread/jsonlog",
	"thread/internal/store/bolt/journal": "thread/index golang.org/x/sys",
	"thread/internal/store/bolt":         "thread/internal/store/bolt/journal thread/event thread/filter thread/index thread/internal/durable thread/internal/progress thread/internal/store thread/internal/store/bolt/disk thread/internal/target thread/jsonlog thread/lock go.etcd.io/bbolt golang.org/x/sys",

	"thread/engine": "thread/event thread/filter thread/index thread/internal/duration thread/internal/progress thread/internal/redact thread/internal/store thread/internal/store/bolt thread/jsonlog thread/internal/watch thread/lock github.com/robfig/cron/v3",

	"thread/internal/backup": "thread/engine thread/internal/durable thread/internal/fsck thread/internal/store thread/internal/store/bolt thread/lock golang.org/x/sys",
	"thread/internal/fsck":   "thread/engine thread/event thread/index thread/internal/durable thread/internal/progress thread/internal/store thread/internal/store/bolt thread/internal/store/bolt/disk thread/jsonlog thread/lock",

	"thread/internal/dispatch": "thread/engine thread/event thread/filter thread/internal/command thread/internal/durable thread/internal/lanes thread/internal/pipe thread/internal/programs thread/internal/store thread/jsonlog thread/lock golang.org/x/sys gopkg.in/natefinch/lumberjack.v2",
	"thread/internal/consume":  "thread/engine thread/event thread/internal/command thread/internal/duration thread/internal/lanes thread/internal/pipe thread/internal/redact thread/internal/watch",
	"thread/internal/jsonform": "thread/engine thread/event thread/filter thread/internal/dispatch",
	"thread/internal/counts":   "thread/engine thread/event",
	"thread/compat":            "thread/engine thread/event thread/filter thread/history thread/internal/apptable thread/internal/durable thread/internal/historymirror thread/internal/store thread/internal/target thread/jsonlog thread/lock modernc.org/sqlite",

	"thread/internal/address": "thread/engine",

	"thread/handlers": "thread/engine thread/internal/dispatch",
	"thread/history":  "thread/engine thread/event thread/internal/address thread/internal/command thread/internal/store thread/internal/watch thread/lock",
	"thread/worker":   "thread/engine thread/event thread/internal/watch",
	"thread/outbox":   "thread/engine thread/event thread/filter thread/internal/command thread/internal/duration thread/internal/pipe thread/internal/similar thread/lock",

	"thread/internal/historymirror":            "thread/engine thread/event thread/history thread/internal/address",
	"thread/internal/historymirror/mirrortest": "thread/engine thread/history thread/internal/historymirror pgregory.net/rapid", // tests only

	"thread/internal/systemd": "github.com/coreos/go-systemd/v22/daemon",

	"thread/internal/api":  "thread/engine thread/event thread/filter thread/history thread/internal/address thread/internal/counts thread/internal/dispatch thread/internal/duration thread/internal/jsonform thread/internal/signed thread/internal/similar thread/internal/target thread/outbox",
	"thread/internal/page": "thread/engine thread/event thread/filter thread/history thread/internal/address thread/internal/dispatch thread/internal/jsonform thread/internal/signed thread/internal/similar thread/internal/target thread/internal/watch thread/lock",

	"thread/internal/mcp": "thread/engine thread/event thread/history thread/internal/address thread/internal/dispatch thread/internal/duration thread/internal/jsonform thread/internal/signed thread/internal/target github.com/modelcontextprotocol/go-sdk",

	"thread/internal/spans":                   "thread/event thread/internal/programs thread/internal/redact",
	"thread/internal/traces":                  "thread/engine thread/event thread/history thread/internal/address thread/internal/spans thread/internal/watch thread/lock",
	"thread/internal/otlp":                    "thread/engine thread/event thread/internal/spans thread/internal/traces go.opentelemetry.io/proto/slim/otlp google.golang.org/protobuf",
	"thread/internal/verb/tracing":            "thread/internal/cli thread/internal/spans",
	"thread/internal/verb/tracing/deliveries": "thread/engine thread/internal/consume thread/internal/spans thread/internal/verb/tracing",

	"thread/internal/steer":  "thread/engine thread/internal/store",
	"thread/internal/socket": "thread/internal/dispatch golang.org/x/sys",

	"thread/internal/serve": "thread/engine thread/event thread/history thread/internal/address thread/internal/api thread/internal/command thread/internal/dispatch thread/internal/lanes thread/internal/otlp thread/internal/page thread/internal/pipe thread/internal/programs thread/internal/signed thread/internal/similar thread/internal/socket thread/internal/steer thread/internal/watch thread/jsonlog thread/lane thread/lock github.com/prometheus/client_golang golang.org/x/sys",

	"thread/internal/terminal": "thread/event golang.org/x/sys golang.org/x/text",
	"thread/internal/cli":      "thread/engine thread/internal/address thread/event thread/filter thread/internal/dispatch thread/internal/duration thread/internal/programs thread/internal/similar thread/internal/store thread/internal/target thread/internal/terminal thread/jsonlog thread/lock github.com/alecthomas/kong golang.org/x/sys golang.org/x/text",

	"thread/internal/verb/core":          "thread/engine thread/event thread/filter thread/internal/cli thread/internal/consume thread/internal/counts thread/internal/dispatch thread/internal/duration thread/internal/fsck thread/internal/jsonform thread/internal/progress thread/internal/target thread/internal/terminal thread/internal/verb/tracing/deliveries thread/internal/watch thread/jsonlog",
	"thread/internal/verb/sqlite":        "thread/compat thread/engine thread/history thread/internal/apptable thread/internal/cli thread/internal/durable thread/internal/target thread/internal/terminal thread/internal/verb/mirror thread/internal/verb/take",
	"thread/internal/verb/mirror":        "thread/history thread/internal/cli thread/internal/terminal",
	"thread/internal/verb/take":          "thread/engine thread/event thread/internal/apptable thread/internal/cli thread/internal/terminal thread/outbox",
	"thread/internal/verb/take/taketest": "thread/engine thread/internal/verb/take thread/outbox", // tests only
	"thread/internal/verb/history":       "thread/engine thread/event thread/history thread/internal/backup thread/internal/cli thread/internal/command thread/internal/dispatch thread/internal/jsonform thread/internal/pipe thread/internal/spans thread/internal/steer thread/internal/target thread/internal/terminal thread/internal/traces thread/internal/verb/tracing",
	"thread/internal/verb/outbox":        "thread/engine thread/event thread/history thread/internal/cli thread/internal/dispatch thread/internal/similar thread/internal/terminal thread/jsonlog thread/outbox github.com/goccy/go-yaml/ast github.com/goccy/go-yaml/parser",
	"thread/internal/verb/serve":         "thread/engine thread/event thread/internal/address thread/internal/cli thread/internal/dispatch thread/internal/durable thread/internal/jsonform thread/internal/mcp thread/internal/otlp thread/internal/page thread/internal/programs thread/internal/serve thread/internal/similar thread/internal/spans thread/internal/systemd thread/internal/target thread/internal/terminal thread/jsonlog thread/lane thread/lock github.com/coreos/go-systemd/v22/daemon golang.org/x/term gopkg.in/natefinch/lumberjack.v2",

	"thread/examples/shop": "thread/history",

	"thread/cmd/thread":         "thread/internal/cli thread/internal/verb",
	"thread/cmd/thread-sqlite":  "thread/internal/cli thread/internal/verb/sqlite",
	"thread/cmd/thread-history": "thread/internal/cli thread/internal/verb/history",
	"thread/cmd/thread-outbox":  "thread/internal/cli thread/internal/verb/outbox",
	"thread/cmd/thread-serve":   "thread/internal/cli thread/internal/verb/serve",

	"thread/internal/survive":       "", // tests only
	"thread/internal/survive/guest": "golang.org/x/sys",

	"thread/tools/cover":    "",
	"thread/tools/branches": "thread/tools/cover",
	"thread/tools/mutants":  "thread/tools/cover",
	"thread/tools/sbom":     "",
	"thread/tools/simulate": "thread/engine thread/internal/bugs thread/internal/fsck golang.org/x/sys",
}

func TestImportsPointDown(t *testing.T) {
	table := map[string]string{}
	for pkg, allowed := range permitted {
		table[short(t, pkg)] = short(t, allowed)
	}
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		pkg, imports, _ := strings.Cut(line, " ")
		allowed, known := table[pkg]
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
		"thread":         "net/http thread/compat thread/history thread/internal/serve thread/outbox modernc.org github.com/prometheus github.com/coreos",
		"thread-history": "net/http thread/compat thread/internal/serve thread/outbox modernc.org github.com/prometheus github.com/coreos",
		"thread-outbox":  "net/http thread/compat thread/internal/serve modernc.org github.com/prometheus github.com/coreos",
		"thread-sqlite":  "net/http thread/internal/serve github.com/prometheus github.com/coreos",
		"thread-serve":   "thread/compat modernc.org",
	} {
		for _, dep := range goList(t, "-deps", "-f", "{{.ImportPath}}", "./cmd/"+program) {
			if covered(dep, strings.Fields(short(t, tests+unwanted))) {
				t.Errorf("%s links %s", program, dep)
			}
		}
	}
}

// TestLiteLinksNoExpr: the program of thread-lite walks the tree of a filter.
func TestLiteLinksNoExpr(t *testing.T) {
	for _, dep := range goList(t, "-deps", "-tags", "lite", "-f", "{{.ImportPath}}", "./cmd/thread") {
		if covered(dep, []string{"github.com/expr-lang/expr"}) {
			t.Errorf("thread built with the tag lite links %s", dep)
		}
	}
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	lines := strings.Split(short(t, strings.TrimSpace(string(out))), "\n")
	if len(lines) < 2 {
		t.Fatalf("go list %v printed %q", args, out)
	}
	return lines
}

// short puts "thread" in the place of the path of the module, whatever that is (see
// tools/module-path.sh), in text in which packages stand between white space.
func short(t *testing.T, text string) string {
	t.Helper()
	module, err := modulePath()
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(^|\s)`+regexp.QuoteMeta(module)+`(/|\s|$)`).ReplaceAllString(text, "${1}thread${2}")
}

var modulePath = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m").Output()
	return strings.TrimSpace(string(out)), err
})

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
