//go:build unix

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalColumns returns how wide the terminal is that f is: 0 for a terminal
// that does not know, as on a serial line. Anything else is not ok.
func terminalColumns(f *os.File) (columns int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}
