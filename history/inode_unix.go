//go:build unix

package history

import (
	"os"
	"strconv"
	"syscall"
)

// inodeOf returns the number by which the file system knows the directory, "" where
// that is not known.
func inodeOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return strconv.FormatUint(uint64(st.Ino), 10) //nolint:unconvert // its type differs between systems
}
