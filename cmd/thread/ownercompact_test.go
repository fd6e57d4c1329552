//go:build linux

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// file is what may not change.
type file struct {
	text     []byte
	inode    uint64
	uid, gid uint32
	mode     fs.FileMode
}

func (a *accounts) file(path string) file {
	a.Helper()
	text, err := os.ReadFile(path)
	a.check(err)
	info, err := os.Lstat(path)
	a.check(err)
	st := info.Sys().(*syscall.Stat_t)
	return file{text, st.Ino, st.Uid, st.Gid, info.Mode()}
}

// What replaces the database has its owner, group and mode, or it is not replaced.
func TestCompactByAnother(t *testing.T) {
	for _, tc := range []struct {
		name          string
		as            uint32
		gid           int
		dirMode, mode fs.FileMode
		refused       string
	}{
		{"its owner", nobody, nobody, 0o700, 0o640, ""},
		{"its owner, outside its group", nobody, stranger, 0o700, 0o660, "uid 65534 and group 60001 of events.db could not be kept - run it as that account, or as root"},
		{"its owner, of a group without rights", nobody, stranger, 0o700, 0o600, ""},
		{"root", root, stranger, 0o770, 0o660, ""},
		{"one of its group", stranger, stranger, 0o770, 0o660, "Error: the thread belongs to another account: uid 65534"},
		{"any account", stranger, nobody, 0o777, 0o666, "Error: the thread belongs to another account: uid 65534"},
	} {
		for _, verb := range [][]string{{"compact"}, {"prune", "--keep-last", "1", "--force"}} {
			t.Run(verb[0]+" by "+tc.name, func(t *testing.T) {
				a := newAccounts(t)
				push := func() { // starts nothing, which would continue next to what follows
					a.Helper()
					cmd := a.command(nobody, a.push(a.thread)...)
					cmd.Env = append(cmd.Env, "THREAD_DISPATCH=none")
					out, err := cmd.CombinedOutput()
					if err != nil || len(out) > 0 {
						a.Fatalf("%v: %s", err, out)
					}
				}
				push()
				push()
				a.check(filepath.WalkDir(a.thread, func(path string, d fs.DirEntry, err error) error {
					a.check(err)
					a.check(os.Lchown(path, nobody, tc.gid))
					return os.Chmod(path, map[bool]fs.FileMode{true: tc.dirMode, false: tc.mode}[d.IsDir()])
				}))
				db := filepath.Join(a.thread, "events.db")
				before := a.file(db)
				args := append(verb, "--thread", a.thread, "--json")
				if tc.refused == "" {
					a.ok(tc.as, args...)
				} else {
					a.says(tc.as, 1, []string{tc.refused}, args[:len(args)-1]...)
				}
				after := a.file(db)
				if replaced := before.inode != after.inode; replaced != (tc.refused == "") || !replaced && !bytes.Equal(before.text, after.text) {
					t.Errorf("replaced: %t", replaced)
				}
				if after.uid != before.uid || after.mode != before.mode || after.gid != before.gid && after.mode&0o070 != 0 {
					t.Errorf("got %d %d %v, want %d %d %v", after.uid, after.gid, after.mode, before.uid, before.gid, before.mode)
				}
				if left, _ := filepath.Glob(db + "?*"); left != nil {
					t.Errorf("%q was left", left)
				}
				push()
			})
		}
	}
}

// Root gives away no file that lay in the place of the copy.
func TestCompactBesideLink(t *testing.T) {
	a := newAccounts(t)
	secret := filepath.Join(a.dir, "secret")
	a.check(os.WriteFile(secret, []byte("root's"), 0o600))
	before := a.file(secret)
	a.check(os.Link(secret, filepath.Join(a.thread, "events.db.compact")))
	a.ok(root, "compact", "--thread", a.thread, "--json")
	if got := a.file(secret); !bytes.Equal(got.text, before.text) || got.uid != root || got.mode != before.mode {
		t.Errorf("got %+v, want %+v", got, before)
	}
	if list := a.foreign(); list != nil {
		t.Errorf("root left %v", list)
	}
}
