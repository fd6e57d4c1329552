//go:build unix

package dispatch

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// owner is the account that a thread belongs to.
type owner struct{ uid, gid uint32 }

func statOf(info os.FileInfo) (owner, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return owner{}, false
	}
	return owner{st.Uid, st.Gid}, true
}

func self() uint32 { return uint32(os.Geteuid()) }

// ownerOf returns whom the thread belongs to, and an OwnerError unless that is
// this process's account.
func ownerOf(dir string) (owner, error) {
	d, err := os.Stat(dir)
	if err != nil {
		return owner{}, err
	}
	f, err := os.Lstat(filepath.Join(dir, "events.db"))
	if err != nil {
		return owner{}, err
	}
	of, ok := statOf(f)
	above, ok2 := statOf(d)
	if !ok || !ok2 {
		return owner{}, nil
	}
	// Root's directory into which others may put files lets them choose events.db.
	const others = 0o022
	rooted := above.uid == 0 && (d.Mode()&others == 0 || d.Mode()&os.ModeSticky != 0)
	switch {
	case above.uid != of.uid && !rooted:
		return owner{}, &OwnerError{Path: dir, Thread: true, Owner: accountName(of.uid), Mixed: accountName(above.uid)}
	case of.uid != self():
		return of, &OwnerError{Path: dir, Thread: true, Owner: accountName(of.uid)}
	}
	return of, nil
}

// otherOwner names the owner of a file if that is another account.
func otherOwner(info os.FileInfo) (name string, other bool) {
	o, ok := statOf(info)
	if !ok || o.uid == self() {
		return "", false
	}
	return accountName(o.uid), true
}

// isPrivate reports whether a file is this account's, or root's, and for no process
// else to write.
func isPrivate(info os.FileInfo) bool {
	o, ok := statOf(info)
	return ok && (o.uid == self() || o.uid == 0) && info.Mode()&0o022 == 0
}

// accessible returns an error if this process may not use the file or directory.
func accessible(path string) error {
	const readAndWrite = 6
	if err := syscall.Access(path, readAndWrite); err != nil {
		return &os.PathError{Op: "access", Path: path, Err: err}
	}
	return nil
}

func accountName(uid uint32) string {
	if u, err := user.LookupId(strconv.Itoa(int(uid))); err == nil {
		return u.Username
	}
	return "uid " + strconv.Itoa(int(uid))
}

// asOwner makes cmd, which concerns the thread in dir, run with the rights that
// its handlers may have: this process's, or if that is root, its owner's. It
// returns an OwnerError when there are none.
//
// The owner gets its own groups, HOME, USER and LOGNAME, the root directory as
// working directory, and of the environment only what is about language, time,
// PATH and thread: the rest may be none of its business.
func asOwner(cmd *exec.Cmd, dir string) error {
	of, err := ownerOf(dir)
	if err == nil || trusted(dir) {
		return nil
	}
	if of == (owner{}) || self() != 0 {
		return err
	}
	home, groups := "/", []uint32{of.gid}
	env := lent(os.Environ())
	if u, err := user.LookupId(strconv.Itoa(int(of.uid))); err == nil {
		if gid, err := strconv.ParseUint(u.Gid, 10, 32); err == nil {
			of.gid = uint32(gid)
		}
		groups = groupsOf(u)
		home = u.HomeDir
		env = append(env, "USER="+u.Username, "LOGNAME="+u.Username)
	}
	cmd.Env = append(env, "HOME="+home)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: of.uid, Gid: of.gid, Groups: groups}}
	return nil
}

// maxGroups is what every system but Linux takes at most.
const maxGroups = 16

func groupsOf(u *user.User) (list []uint32) {
	ids, _ := u.GroupIds()
	for _, id := range ids {
		if gid, err := strconv.ParseUint(id, 10, 32); err == nil {
			list = append(list, uint32(gid))
		}
	}
	if runtime.GOOS != "linux" {
		list = list[:min(len(list), maxGroups)]
	}
	return list
}

// lent is the part of root's environment that another account gets.
func lent(environ []string) (list []string) {
	for _, v := range environ {
		switch name, _, _ := strings.Cut(v, "="); {
		case name == "PATH", name == "TZ", name == "LANG", name == "LANGUAGE", strings.HasPrefix(name, "LC_"),
			name == envDispatch, name == envAck, name == "THREAD_NETWORK":
			list = append(list, v)
		}
	}
	return list
}

// startedAs words an error of starting cmd.
func startedAs(cmd *exec.Cmd, err error) error {
	if err == nil || cmd.SysProcAttr == nil || cmd.SysProcAttr.Credential == nil {
		return err
	}
	return fmt.Errorf("as %s: %w", accountName(cmd.SysProcAttr.Credential.Uid), err)
}
