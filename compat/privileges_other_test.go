//go:build !unix && ((linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)) || (windows && (386 || amd64 || arm64)))

package compat

import (
	"os/exec"
	"testing"
)

func dropPrivileges(t *testing.T, _ *exec.Cmd, _ string) {
	t.Skip("needs the permissions of Unix")
}
