package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// block is a fenced block of a page: what stands behind the fence, and its text.
type block struct {
	mark, text string
	line       int
}

// A page's blocks by the word behind the fence:
//
//	sh            runs; its output is compared with a block text or json that follows
//	sh forever C  does not return: it runs until the page's end; C succeeds when it is ready
//	sh elsewhere WHY  needs root, docker, a clone …: its syntax and flags are checked
//	sh outside    needs thread-bridge or thread-net: runs with THREAD_DOCS=1, else as elsewhere
//	sh server     needs a broker or PostgreSQL: a test of bridge or net runs it with one, here as elsewhere
//	NAME file F   is written to the file F
//
// In text, … stands for anything within a line, or as a line for any lines; times are
// all alike. Of json the shape is compared.
var fence = regexp.MustCompile("(?ms)^( *)```(\\w[^\n]*)?\n(.*?)^ *```$")

func blocks(page string) (found []block) {
	for _, at := range fence.FindAllStringSubmatchIndex(page, -1) {
		b := block{text: page[at[6]:at[7]], line: strings.Count(page[:at[0]], "\n") + 1}
		if at[4] >= 0 {
			b.mark = page[at[4]:at[5]]
		}
		if indent := page[at[2]:at[3]]; indent != "" {
			b.text = strings.ReplaceAll("\n"+b.text, "\n"+indent, "\n")[1:]
		}
		found = append(found, b)
	}
	return found
}

// TestPages runs every block of every document, in the order of its page, in a
// directory for each page, and compares what is printed.
func TestPages(t *testing.T) {
	var pages []string
	for _, root := range []string{"../../README.md", "../../CONTRIBUTING.md", "../../docs", "../../examples"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			// The spec is prose; the goals of examples/README.md have TestGoals.
			if strings.HasSuffix(path, ".md") && !strings.Contains(path, "/spec/") && path != "../../examples/README.md" {
				pages = append(pages, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range pages {
		name := strings.TrimPrefix(path, "../../")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			runPage(t, name, string(page))
		})
	}
}

// setup is a comment with commands that readers need not see; after names the page
// whose blocks come before.
var (
	setup = regexp.MustCompile(`(?s)<!-- setup:(.*?)-->`)
	after = regexp.MustCompile(`<!-- after: (\S+) -->`)
)

const (
	endMark   = "\x01"
	forever   = "sh forever"
	outside   = "sh outside"
	elsewhere = "sh elsewhere"
	server    = "sh server"
)

func runPage(t *testing.T, name, page string) {
	dir, err := os.MkdirTemp("", "page")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		awaitRest(dir)
		// A supervisor that waited for a retry may write once more meanwhile.
		for end := time.Now().Add(time.Minute); os.RemoveAll(dir) != nil && time.Now().Before(end); {
		}
	})
	all := blocks(page)
	var script strings.Builder
	if m := after.FindStringSubmatch(page); m != nil {
		before, err := os.ReadFile(filepath.Join("../..", filepath.Dir(name), m[1]))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(string(before)) {
			if b.mark == "sh" {
				script.WriteString(b.text)
			}
		}
		fmt.Fprintf(&script, "printf '%s0\\n'\n", endMark)
	}
	for _, m := range setup.FindAllStringSubmatch(page, -1) {
		script.WriteString(m[1] + "\n")
	}
	var ran []int
	for i, b := range all {
		mark, what, _ := strings.Cut(b.mark, " file ")
		switch {
		case what != "":
			if err := os.WriteFile(filepath.Join(dir, what), []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
		case mark == elsewhere:
			t.Errorf("%s:%d: it is not said why the block runs elsewhere", name, b.line)
		case strings.HasPrefix(mark, elsewhere) || mark == server || mark == outside && os.Getenv("THREAD_DOCS") == "":
			checkSyntax(t, name, b)
		case strings.HasPrefix(mark, forever):
			ready := strings.TrimSpace(strings.TrimPrefix(mark, forever))
			fmt.Fprintf(&script, "(\n%s) >>forever.log 2>&1 &\nrunning=\"$running $!\"\nnow=$(date +%%s); until (%s) >/dev/null 2>&1; do /bin/sleep 0.05; [ $(($(date +%%s) - now)) -lt 20 ] || { cat forever.log; break; }; done\n", b.text, ready)
		case mark == "sh" || mark == outside:
			stderr := "2>&1"
			if follows(all, i).mark == "json" {
				stderr = "2>>stderr.log"
			}
			fmt.Fprintf(&script, "{\n%s} %s\nprintf '%s%%s\\n' \"$?\"\n", b.text, stderr, endMark)
			ran = append(ran, i)
		case mark == "bash" || mark == "console" || mark == "shell":
			t.Errorf("%s:%d: a block of the shell is marked sh", name, b.line)
		}
	}
	if len(ran) == 0 {
		return
	}
	out := play(t, dir, script.String())
	parts := strings.Split(out, endMark)
	if after.MatchString(page) {
		parts = parts[1:]
		_, parts[0], _ = strings.Cut(parts[0], "\n")
	}
	if len(parts) != len(ran)+1 {
		t.Fatalf("%s: %d of %d blocks ended:\n%s", name, len(parts)-1, len(ran), out)
	}
	for n, i := range ran {
		code, _, _ := strings.Cut(parts[n+1], "\n")
		got := parts[n]
		if n > 0 {
			_, got, _ = strings.Cut(got, "\n")
		}
		b, shown := all[i], follows(all, i)
		switch {
		case shown.mark == "text":
			if !printed(shown.text).MatchString(got) {
				t.Errorf("%s:%d: the page shows\n%s\nand what is printed is\n%s", name, b.line, shown.text, got)
			}
		case shown.mark == "json":
			if a, b := shape(t, got), shape(t, shown.text); !sameShape(a, b) {
				t.Errorf("%s:%d: the page shows\n%s\nand what is printed is\n%s", name, all[i].line, shown.text, got)
			}
		case code != "0":
			t.Errorf("%s:%d: exit code %s and nothing is said of it\n%s%s", name, b.line, code, b.text, got)
		}
	}
}

// follows returns the block that comes directly after the i-th, with an empty line between.
func follows(all []block, i int) block {
	if i+1 == len(all) || all[i+1].line != all[i].line+strings.Count(all[i].text, "\n")+3 {
		return block{}
	}
	return all[i+1]
}

// play runs the script and returns stdout and stderr as a terminal shows them.
func play(t *testing.T, dir, script string) string {
	t.Helper()
	tools := t.TempDir()
	// A page sleeps for what a handler does: here that is waited for.
	sleep := "#!/bin/sh\ncase $1 in ????*) exec /bin/sleep \"$1\";; esac\nawait-rest " + dir + "\n[ ! -e " + dir + "/forever.log ] || exec /bin/sleep \"$1\"\n"
	if err := os.WriteFile(filepath.Join(tools, "sleep"), []byte(sleep), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(tools, "page.sh")
	if err := os.WriteFile(path, []byte(script+"\nkill $running 2>/dev/null; wait\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := ""
	if os.Getenv("THREAD_DOCS") != "" { // thread-bridge and thread-net
		bin, _ = filepath.Abs("../../bin")
	}
	clone, _ := filepath.Abs("../..")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", path)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=spawn", "TMPDIR="+dir, "HOME="+dir, "CLONE="+clone, "NO_COLOR=1",
		"PATH="+tools+":"+os.Getenv("PATH")+":"+bin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // the exit codes of its blocks count
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	return strings.ReplaceAll(out.String(), dir, "…")
}

var (
	anyTime = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`)
	hole    = regexp.MustCompile(`…`)
)

// printed returns what a page shows as an expression.
func printed(text string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`^`)
	for line := range strings.Lines(text) {
		if line == "…\n" {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		last := 0
		line = strings.TrimSuffix(line, "\n")
		for _, at := range regexp.MustCompile(anyTime.String()+`|…`).FindAllStringIndex(line, -1) {
			b.WriteString(regexp.QuoteMeta(line[last:at[0]]))
			if hole.MatchString(line[at[0]:at[1]]) {
				b.WriteString(`.*`)
			} else {
				b.WriteString(anyTime.String())
			}
			last = at[1]
		}
		b.WriteString(regexp.QuoteMeta(line[last:]) + `\n`)
	}
	return regexp.MustCompile(b.String() + `$`)
}

// checkSyntax lets a shell read what is not run, and looks for its flags in the grammars.
func checkSyntax(t *testing.T, name string, b block) {
	if out, err := exec.Command("sh", "-nc", b.text).CombinedOutput(); err != nil {
		t.Errorf("%s:%d: %v\n%s", name, b.line, err, out)
	}
	known := map[string]map[string]bool{}
	for _, v := range allVerbs() {
		flags := map[string]bool{"--help": true}
		for _, f := range v.Model().Flags {
			flags["--"+f.Name] = true
			flags["-"+string(f.Short)] = true
		}
		known[v.Name] = flags
	}
	text := strings.ReplaceAll(b.text, "\\\n", " ")
	for _, m := range regexp.MustCompile(`(?m)(?:^|[|;&(]|sudo|exec) *thread ([a-z]+)(?: ([a-z]+))?([^|;&\n]*)`).FindAllStringSubmatch(text, -1) {
		flags := known[m[1]+" "+m[2]]
		if flags == nil {
			flags = known[m[1]]
		}
		if flags == nil {
			continue // of a program that is not here
		}
		own, _, _ := strings.Cut(m[3]+" ", " -- ")
		for _, f := range regexp.MustCompile(` (--?[a-z][a-z-]*)`).FindAllStringSubmatch(own, -1) {
			if !flags[f[1]] {
				t.Errorf("%s:%d: thread %s %s has no flag %s", name, b.line, m[1], m[2], f[1])
			}
		}
	}
}

// TestPrinted: what a page shows is compared as its comment says.
func TestPrinted(t *testing.T) {
	for _, tt := range []struct {
		shown, got string
		same       bool
	}{
		{"1\n", "1\n", true},
		{"1\n", "1\n2\n", false},
		{"at …/inbox\n", "at /tmp/x/inbox\n", true},
		{"a\n…\nb\n", "a\nb\n", true},
		{"a\n…\nb\n", "a\n1\n2\nb\n", true},
		{"a\n…\nb\n", "a\n1\n2\n", false},
		{"at 2026-01-01T10:00:00.123Z.\n", "at 2027-02-03T11:12:13.456Z.\n", true},
		{"at 2026-01-01T10:00:00.123Z.\n", "at noon.\n", false},
		{"(x)\n", "x\n", false},
	} {
		if got := printed(tt.shown).MatchString(tt.got); got != tt.same {
			t.Errorf("%q and %q: %v", tt.shown, tt.got, got)
		}
	}
}
