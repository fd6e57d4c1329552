package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// terminalColumns returns how wide the terminal is that f is. Anything else is
// not ok.
func terminalColumns(f *os.File) (columns int, ok bool) {
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info) != nil {
		return 0, false
	}
	return int(info.Window.Right-info.Window.Left) + 1, true
}
