//go:build unix

package cli

import (
	"os"
	"syscall"
)

// replaceBy makes this process the program at path: the terminal, signals and the
// exit code are its own.
func (a *App) replaceBy(path string, args []string) error {
	return &os.PathError{Op: "run", Path: path, Err: syscall.Exec(path, append([]string{path}, args...), os.Environ())}
}
