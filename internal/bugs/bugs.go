// Package bugs plants known bugs into copies of the module's files, to see that the
// tests notice them. It is for tests only: the product knows nothing of it.
//
// A bug is a patch. Its first line names the test that must notice it, the package of
// that test, and what it needs in its environment:
//
//	TestSoak ./internal/serve [NAME=VALUE ...]
package bugs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Bug is one bug to plant.
type Bug struct {
	Name    string // of the patch file, without its ending
	Test    string // a pattern for go test -run
	Package string // relative to the root of the module: ./internal/serve
	Env     []string
	patch   []byte
}

// Read reads the patches in dir, *.patch, in the order of their names. It is an
// error when there is none.
func Read(dir string) ([]*Bug, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no patches in %s", dir)
	}
	var list []*Bug
	for _, path := range paths {
		bug, err := ReadOne(path)
		if err != nil {
			return nil, err
		}
		list = append(list, bug)
	}
	return list, nil
}

// ReadOne reads one patch.
func ReadOne(path string) (*Bug, error) {
	patch, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(string(patch), "\n")
	fields := strings.Fields(first)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "Test") || !strings.HasPrefix(fields[1], "./") {
		return nil, fmt.Errorf("%s: the first line is %q, not a test and its package", path, first)
	}
	name := strings.TrimSuffix(filepath.Base(path), ".patch")
	return &Bug{Name: name, Test: fields[0], Package: fields[1], Env: fields[2:], patch: patch}, nil
}

// With returns a bug that changes what both change.
func (b *Bug) With(other *Bug) *Bug {
	both := *b
	both.patch = slices.Concat(b.patch, other.patch)
	return &both
}

var changed = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)

// Plant copies the files that the patch changes from the module in root to dir,
// under the same names, and patches the copies. It returns the path of a list of
// them for the flag -overlay of go build and go test. So the rest of the module
// comes from the build cache.
func (b *Bug) Plant(root, dir string) (overlay string, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, m := range changed.FindAllSubmatch(b.patch, -1) {
		from, to := filepath.Join(root, string(m[1])), filepath.Join(dir, string(m[1]))
		text, err := os.ReadFile(from)
		if err != nil {
			return "", fmt.Errorf("%s: %w", b.Name, err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return "", err
		}
		replace[from] = to
	}
	cmd := exec.Command("patch", "-s", "-p1")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(b.patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: the patch does not apply to this code: %w: %s", b.Name, err, out)
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o600)
}

// CheckAll checks every patch in dir, each in a separate directory that scratch makes.
// The error names all that the code has left behind.
func CheckAll(dir, root string, scratch func() string) error {
	list, err := Read(dir)
	for _, b := range list {
		err = errors.Join(err, b.Check(root, scratch()))
	}
	return err
}

// Check plants the bug in dir and looks for the test that must notice it: what can be
// said without building anything.
func (b *Bug) Check(root, dir string) error {
	if _, err := b.Plant(root, dir); err != nil {
		return err
	}
	name, _, _ := strings.Cut(strings.TrimSuffix(b.Test, "$"), "/")
	name = strings.TrimSuffix(name, "$")
	files, err := filepath.Glob(filepath.Join(root, b.Package, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("\nfunc "+name+"(t *testing.T)")) {
			return nil
		}
	}
	return fmt.Errorf("%s: no test %s in %s", b.Name, name, b.Package)
}

// Noticed reports whether out, what a run of tests printed that ended with an error,
// is of a test that failed, and not of a build or of a set-up that did.
func Noticed(out []byte) bool { return bytes.Contains(out, []byte("--- FAIL: ")) }
