package thread_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a directory with one script of this one, to be a git repository.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T, script string) repository {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not there")
	}
	r := repository{t, t.TempDir()}
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	r.write(script, string(text))
	return r
}

func (r repository) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o755)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r repository) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "APIDIFF="+filepath.Join(r.dir, "apidiff"),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r repository) git(args ...string) {
	r.t.Helper()
	if out, err := r.run("git", args...); err != nil {
		r.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

// TestRelease: tools/release.sh refuses what is not a release, having made nothing, and says
// of every file of one where it comes from. A stand-in builds the files.
func TestRelease(t *testing.T) {
	r := newRepository(t, "tools/release.sh")
	dir, write, run, git := r.dir, r.write, r.run, r.git
	write("tools/dist.sh", "#!/bin/sh\necho $VERSION >$2/thread\necho b >\"$2/with space\"\necho x >$2/SHA256SUMS\n")
	write("tools/api.sh", "#!/bin/sh\nexit 1\n")
	write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [0.2.0] - 2026-01-01\n\n- this\n\n## [0.1.0]\n\n- old\n\n## [0.0.9]\n\n- mended\n")
	write(".gitignore", "/release/\n/again/\n")
	refused := func(what string) {
		t.Helper()
		out, err := run("tools/release.sh", "release")
		if err == nil || !strings.HasPrefix(out, "Error: ") || !strings.Contains(out, what) || strings.Count(out, "\n") != 1 {
			t.Errorf("%v: %q, want %q", err, out, what)
		}
		if found, _ := filepath.Glob(filepath.Join(dir, "release*")); len(found) > 0 {
			t.Errorf("it made %q", found)
		}
	}
	git("init", "-q")
	refused("not committed")
	git("add", "-A")
	git("commit", "-qm", "one")
	refused("no version tag")
	git("tag", "v0.3.0")
	refused("no section [0.3.0]")
	git("tag", "-d", "v0.3.0")
	git("tag", "v1.0-rc")
	refused("no semantic version")
	git("tag", "-d", "v1.0-rc")
	git("tag", "v0.2.1")
	refused("no section [0.2.1]")
	git("tag", "-d", "v0.2.1")
	git("tag", "v0.0.9")
	refused("is a patch")
	git("tag", "-d", "v0.0.9")
	git("tag", "v0.2.0")
	t.Setenv("GOEXPERIMENT", "none") // as the Makefile may set one
	t.Setenv("RELEASE_TARGETS", "linux/arm/6 linux/mipsle")
	for _, name := range []string{"release", "again"} {
		if out, err := run("tools/release.sh", name); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if out, err := run("diff", "-r", "release", "again"); err != nil {
		t.Errorf("not the same twice: %v\n%s", err, out)
	}
	if out, err := run("sh", "-c", "cd release && sha256sum -c SHA256SUMS && test $(wc -l <SHA256SUMS) = 4"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	changes, err := os.ReadFile(filepath.Join(dir, "release", "CHANGES.md"))
	if err != nil || string(changes) != "# v0.2.0\n\n- this\n" {
		t.Errorf("%q, %v", changes, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "release", "provenance.json"))
	var p struct {
		Version, Commit, Go, GoExperiment, Command string
		Files                                      []struct{ Name, SHA256 string }
	}
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil || p.Version != "0.2.0" || len(p.Commit) != 40 || p.Go == "" || len(p.Files) != 3 || p.Files[2].Name != "with space" ||
		p.GoExperiment != "none" || p.Command != "make release RELEASE_TARGETS='linux/arm/6 linux/mipsle'" {
		t.Errorf("%+v, %v\n%s", p, err, b)
	}
	write("CHANGELOG.md", "changed")
	if out, err := run("tools/release.sh", "other"); err == nil || !strings.Contains(out, "not committed") {
		t.Errorf("%v: %q", err, out)
	}
}

// TestAPI: tools/api.sh compares with the version before, names what is gone, and says so
// with its exit code. A stand-in, a list of the exported names, compares.
func TestAPI(t *testing.T) {
	r := newRepository(t, "tools/api.sh")
	write, run := r.write, r.run
	commit := func(tag string) {
		t.Helper()
		r.git("add", "-A")
		r.git("commit", "-q", "--allow-empty", "-m", "x")
		if tag != "" {
			r.git("tag", tag)
		}
	}
	says := func(want string, fails bool) {
		t.Helper()
		if out, err := run("tools/api.sh"); (err != nil) != fails || !strings.Contains(out, want) {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
		if out, err := run("git", "worktree", "list"); err != nil || strings.Count(out, "\n") != 1 {
			t.Errorf("it leaves a worktree: %v %q", err, out)
		}
	}
	write("go.mod", "module m\n\ngo 1.26\n")
	write("apidiff", `#!/bin/sh
case $1 in
-w) cat "${3#m/}"/*.go | sed -n 's/^func //p' >"$2" ;;
-incompatible) while read -r f; do grep -q "^func $f" "${3#m/}"/*.go || echo "- $f: removed"; done <"$2" ;;
esac
`)
	write("event/e.go", "func A()\nfunc B()\n")
	write("lane/l.go", "func L()\n")
	r.git("init", "-q")
	commit("")
	says("nothing to compare with", false)
	commit("v0.1.0")
	says("nothing to compare with", false) // the first version
	write("event/e.go", "func A()\nfunc C()\n")
	says("event: - B(): removed", true) // not committed
	commit("")
	says("Error: this is not compatible with v0.1.0", true)
	commit("v0.2.0")
	says("event: - B(): removed", true) // the version before it counts
	write("event/e.go", "func A()\nfunc C()\nfunc D()\n")
	commit("")
	says("compatible with v0.2.0", false)
	if err := os.RemoveAll(filepath.Join(r.dir, "lane")); err != nil {
		t.Fatal(err)
	}
	commit("")
	says("lane: removed", true)
}
