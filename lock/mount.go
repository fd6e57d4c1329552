package lock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNetwork is returned by CheckMount.
var ErrNetwork = errors.New("does not keep locks and mapped files in step between hosts")

// networkEnv set to "allow" makes CheckMount accept every mount: for those who see
// to it that one host alone uses the directory.
const networkEnv = "THREAD_NETWORK"

// CheckMount returns ErrNetwork, with the kind of the mount, when path lies on a
// network file system. Two hosts do not see each other's locks there, or not the
// pages that the other has mapped, and a probe from one host cannot tell. Where
// path does not exist it is the nearest parent that counts. What kind the mount is
// is known on Linux, macOS, FreeBSD and Windows; elsewhere CheckMount accepts it.
// It costs one system call.
func CheckMount(path string) error {
	kind := mountKind(path)
	if kind == "" || os.Getenv(networkEnv) == "allow" {
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
