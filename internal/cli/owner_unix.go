//go:build unix

package cli

import (
	"os"
	"syscall"
)

// isOwn reports whether the directory belongs to the user of this process.
func isOwn(dir string) bool {
	st, err := os.Stat(dir)
	if err != nil {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}
