package cli

import (
	"errors"
	"os"
	"os/exec"
)

// replaceBy runs the program at path and ends with its exit code: this system has no
// way for a process to become another program.
func (a *App) replaceBy(path string, args []string) error {
	cmd := exec.Command(path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err == nil {
		os.Exit(0)
	}
	return err
}
