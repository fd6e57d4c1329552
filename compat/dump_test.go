//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64))

package compat

import (
	"crypto/sha256"
	"io"
	"os/exec"

	"pgregory.net/rapid"
)

// sameDump compares the .dump of two SQLite directories with the sqlite3 shell,
// if there is one.
func sameDump(t rapid.TB, a, b string) {
	t.Helper()
	shell, err := exec.LookPath("sqlite3")
	if err != nil {
		return
	}
	var sums [2][32]byte
	for i, dir := range []string{a, b} {
		h := sha256.New()
		cmd := exec.Command(shell, "-readonly", dir+"/events.db", ".dump")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		io.Copy(h, out)
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		h.Sum(sums[i][:0])
	}
	if sums[0] != sums[1] {
		t.Errorf("the dumps of %s and %s differ", a, b)
	}
}
