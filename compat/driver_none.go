//go:build !((linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)))

package compat

// Available is false: modernc.org/sqlite does not run on this kind of host. What
// needs it returns ErrNoSQLite.
const Available = false

func resultCode(error) int { return 0 }
