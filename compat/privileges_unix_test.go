//go:build unix && ((linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)))

package compat

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// dropPrivileges makes cmd run as an account without rights if this process is root, for whom no
// directory is read-only.
func dropPrivileges(t *testing.T, cmd *exec.Cmd, dir string) {
	if os.Geteuid() != 0 {
		return
	}
	if err := copyFile(dir+"/child", cmd.Path); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o755, dir + "/child": 0o755, dir + "/out": 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Path = dir + "/child"
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}
