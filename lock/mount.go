package lock

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
)

// ErrNetwork is returned by CheckMount.
var ErrNetwork = errors.New("does not keep locks and mapped files in step between hosts")

// anyMount makes CheckMount accept every mount.
var anyMount atomic.Bool

// AllowNetwork makes CheckMount accept every mount, in all of this process: for those
// who see to it that one host alone uses the directories.
func AllowNetwork() { anyMount.Store(true) }

// CheckMount returns ErrNetwork, with the kind of the mount, when path lies on a
// network file system. Two hosts do not see each other's locks there, or not the
// pages that the other has mapped, and a probe from one host cannot tell. Where
// path does not exist it is the nearest parent that counts. What kind the mount is
// is known on Linux, macOS, FreeBSD and Windows; elsewhere CheckMount accepts it.
// It costs one system call.
func CheckMount(path string) error {
	kind := mountKind(path)
	if kind == "" || anyMount.Load() {
		return nil
	}
	return fmt.Errorf("%s is on %s, which %w", path, kind, ErrNetwork)
}

// nearest calls look with path and then with its parents until look knows them.
func nearest(path string, look func(path string) error) {
	for look(path) != nil {
		parent := filepath.Dir(path)
		if parent == path {
			return
		}
		path = parent
	}
}
