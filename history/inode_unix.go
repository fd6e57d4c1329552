//go:build unix

package history

import (
	"os"
	"strconv"
	"syscall"
)

// inodeOf returns the number by which the file system knows the directory, "" where
// it has none.
func inodeOf(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", nil
	}
	return strconv.FormatUint(uint64(st.Ino), 10), nil //nolint:unconvert // its type differs between systems
}
