package cli

import (
	"bufio"
	"fmt"
	"strings"

	"thread/internal/terminal"
)

// Confirm asks question on a terminal. It returns an error unless the answer is y or
// yes. Where stdin or stderr is not a terminal, no process can be asked, and the flags that led
// here have to do.
func (a *App) Confirm(question string) error {
	if !terminal.IsTerminal(a.Stdin) || !terminal.IsTerminal(a.Stderr) {
		return nil
	}
	fmt.Fprintf(a.Stderr, "%s [y/N] ", terminal.Printable(question))
	answer, _ := bufio.NewReader(a.Stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return LogicError("not confirmed", "nothing was changed")
}
