//go:build linux

package dispatch

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"thread/engine"
)

const nobody = 65534

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to other accounts")
	}
}

// threadOf makes a thread whose directory and events.db belong to these accounts.
func threadOf(t *testing.T, dirUID, fileUID int, mode os.FileMode) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "thread")
	th, err := engine.Init(dir)
	must(t, err)
	must(t, th.Close())
	must(t, os.Chown(filepath.Join(dir, "events.db"), fileUID, fileUID))
	must(t, os.Chown(dir, dirUID, dirUID))
	must(t, os.Chmod(dir, mode))
	return dir
}

// TestOwners: whom a thread belongs to, by its directory and its events.db, and as whom its
// handlers are started.
func TestOwners(t *testing.T) {
	asRoot(t)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("LC_TIME", "C")
	t.Setenv("SECRET_OF_ROOT", "x")
	for name, tt := range map[string]struct {
		dirUID, fileUID int
		mode            os.FileMode
		want            string // of the error; "": it is ours
		as              uint32 // who runs the handlers, 0 where no other account does
	}{
		"ours":                        {0, 0, 0o700, "", 0},
		"another account's":           {nobody, nobody, 0o700, "belongs to nobody", nobody},
		"in root's directory":         {0, nobody, 0o755, "belongs to nobody", nobody},
		"in a sticky directory":       {0, nobody, os.ModeSticky | 0o777, "belongs to nobody", nobody},
		"in one that others write":    {0, nobody, 0o777, "but its events.db to nobody", 0},
		"in one that a group writes":  {0, nobody, 0o770, "but its events.db to nobody", 0},
		"of nobody, events.db root's": {nobody, 0, 0o755, "belongs to nobody, but its events.db to root", 0},
		"of an account without name":  {54321, 54321, 0o755, "belongs to uid 54321", 54321},
	} {
		dir := threadOf(t, tt.dirUID, tt.fileUID, tt.mode)
		err := Own(dir)
		var foreign *OwnerError
		if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &foreign) || !foreign.Thread || foreign.Path != dir || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", name, err)
		}
		cmd := exec.Command("true")
		err = asOwner(cmd, dir)
		if (err != nil) != (tt.want != "" && tt.as == 0) {
			t.Errorf("%s, as its owner: %v", name, err)
		}
		if tt.as == 0 {
			if cmd.SysProcAttr != nil || cmd.Env != nil {
				t.Errorf("%s runs with %v, %v", name, cmd.SysProcAttr, cmd.Env)
			}
			continue
		}
		c := cmd.SysProcAttr.Credential
		home := "HOME=/"
		if u, err := user.LookupId("65534"); err == nil && tt.as == nobody {
			home = "HOME=" + u.HomeDir
		}
		if c.Uid != tt.as || c.Gid != tt.as || !slices.Contains(c.Groups, tt.as) || cmd.Dir != "/" ||
			!slices.Contains(cmd.Env, home) || slices.Contains(cmd.Env, "SECRET_OF_ROOT=x") || !slices.Contains(cmd.Env, "LC_TIME=C") {
			t.Errorf("%s runs as %+v in %s with %q", name, c, cmd.Dir, cmd.Env)
		}
		if err := startedAs(cmd, errNotReady); !errors.Is(err, errNotReady) || !strings.HasPrefix(err.Error(), "as "+accountName(tt.as)+": ") {
			t.Errorf("%s: %v", name, err)
		}
		if err := startedAs(cmd, nil); err != nil {
			t.Error(err)
		}
	}
	if err := startedAs(exec.Command("true"), errNotReady); err != errNotReady {
		t.Error(err)
	}
	for _, dir := range []string{filepath.Join(t.TempDir(), "gone"), t.TempDir()} {
		if err := Own(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
		if err := asOwner(exec.Command("true"), dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

var errNotReady = errors.New("not ready")

// TestSafeDirectories: another account's thread is as ours where the user has listed it, in a
// file that no process of another account can write.
func TestSafeDirectories(t *testing.T) {
	asRoot(t)
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	dir := threadOf(t, nobody, nobody, 0o755)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	list := filepath.Join(config, "thread", "safe-directories")
	must(t, os.Mkdir(filepath.Dir(list), 0o700))
	for name, tt := range map[string]struct {
		text string
		mode os.FileMode
		uid  int
		safe bool
	}{
		"its path":                   {"# mine\n" + dir + " \t\r\n", 0o600, 0, true},
		"another path to it":         {link + "\n", 0o600, 0, true},
		"a later line":               {"\n/elsewhere\n" + dir, 0o644, 0, true},
		"elsewhere":                  {"/elsewhere\n/\n", 0o600, 0, false},
		"a relative path":            {"thread\n", 0o600, 0, false},
		"of another account":         {dir + "\n", 0o600, nobody, false},
		"that others may write":      {dir + "\n", 0o602, 0, false},
		"that its group may write":   {dir + "\n", 0o620, 0, false},
		"empty":                      {"", 0o600, 0, false},
		"behind more than is read":   {strings.Repeat("# mine\n", maxSafeBytes/7+1) + dir + "\n", 0o600, 0, false},
		"with a line without an end": {strings.Repeat("x", 1<<17) + "\n" + dir + "\n", 0o600, 0, false},
	} {
		must(t, os.WriteFile(list, []byte(tt.text), 0o600))
		must(t, os.Chmod(list, tt.mode))
		must(t, os.Chown(list, tt.uid, 0))
		err := Own(dir)
		cmd := exec.Command("true")
		if (err == nil) != tt.safe || err == nil != (asOwner(cmd, dir) == nil && trusted(dir)) || (cmd.SysProcAttr == nil) != tt.safe {
			t.Errorf("%s: %v, as another account: %v", name, err, cmd.SysProcAttr)
		}
		th, err := engine.Open(dir, OwnFile(dir))
		must(t, err)
		if _, err = th.Due(t.Context()); (err == nil) != tt.safe {
			t.Errorf("%s, by the file: %v", name, err)
		}
		must(t, th.Close())
	}
	must(t, os.Remove(list))
	must(t, syscall.Mkfifo(list, 0o600))
	if trusted(dir) {
		t.Error("a pipe is believed")
	}
	must(t, os.Remove(list))
	if trusted(dir) || sameDir("", dir) || sameDir(dir, "") || sameDir(dir, link+".gone") || sameDir(link+".gone", dir) || !sameDir(dir, link) {
		t.Error("without a list")
	}
	for _, tt := range []struct{ config, home, want string }{
		{"/c", "/h", "/c/thread/safe-directories"}, {"c", "/h", "/h/.config/thread/safe-directories"},
		{"", "/h", "/h/.config/thread/safe-directories"}, {"", "h", ""}, {"", "", ""},
	} {
		t.Setenv("XDG_CONFIG_HOME", tt.config)
		t.Setenv("HOME", tt.home)
		if got := SafeDirectories(); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
		if tt.want == "" && trusted(dir) {
			t.Error("without a home")
		}
	}
}

// TestForeignFile: who is denied a file learns whose it is, and of a directory above that may
// not be passed, whose that is.
func TestForeignFile(t *testing.T) {
	asRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "theirs")
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.Chown(path, nobody, nobody))
	mine := filepath.Join(dir, "mine")
	must(t, os.WriteFile(mine, nil, 0o600))
	denied := func(path string) error { return &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission} }
	for _, tt := range []struct {
		err  error
		want string // of the path that is another account's
	}{
		{nil, ""}, {errNotReady, ""}, {fs.ErrPermission, ""}, {denied(mine), ""}, {denied(path), path},
		{denied(filepath.Join(path, "below", "it")), path}, {denied(filepath.Join(dir, "gone")), ""}, {denied("gone"), ""}, {denied("/"), ""},
		{&fs.PathError{Op: "open", Path: path, Err: syscall.EIO}, ""},
	} {
		got := ForeignFile(tt.err)
		var foreign *OwnerError
		if errors.As(got, &foreign) != (tt.want != "") || tt.want == "" && got != tt.err || foreign != nil && (foreign.Path != tt.want || foreign.Owner != "nobody" || foreign.Thread) {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
	b := newBench(t)
	must(t, b.r.prepare())
	b.r.noteTrouble(errNotReady)
	if err := b.r.trouble(); err != nil || exists(b.r.troublePath()) {
		t.Errorf("what is no trouble: %v", err)
	}
	b.r.noteTrouble(denied(path))
	if text, err := os.ReadFile(b.r.troublePath()); err != nil || string(text) != path+"\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := b.r.trouble(); err != nil { // root may use it
		t.Error(err)
	}
	must(t, os.WriteFile(b.r.troublePath(), []byte("not a path\n"), 0o600))
	if err := b.r.trouble(); err != nil {
		t.Error(err)
	}
	must(t, os.Remove(b.r.troublePath()))
	must(t, os.Mkdir(b.r.troublePath(), 0o700))
	if err := b.r.trouble(); err == nil {
		t.Error("a directory is read")
	}
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }
