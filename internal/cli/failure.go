package cli

import (
	"errors"
	"fmt"

	"thread/event"
	"thread/internal/terminal"
)

// Failure is an error in the words of the command line: what went wrong, how to
// fix it, and the exit code (T-04, T-05).
type Failure struct {
	Code      int
	What, Fix string
	Excerpt   string // further lines, shown on a terminal only
}

func (f *Failure) Error() string { return f.What + " - " + f.Fix }

// LogicError is a failure with exit code 1: the command was understood and cannot be
// carried out.
func LogicError(what, fix string) error { return &Failure{Code: 1, What: what, Fix: fix} }

// UsageError is a failure with exit code 2: the command line or its input is wrong.
func UsageError(what, fix string) error { return &Failure{Code: 2, What: what, Fix: fix} }

// Taken is the failure of an output that would replace a file.
func Taken(path string) error { return LogicError(path+" already exists", "name a new one") }

// Exited is an end with that exit code and without a message: a command that was run
// has ended so, and said why itself.
type Exited int

func (e Exited) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// report prints err on stderr and returns the exit code.
func (a *App) report(err error) int {
	var r *refusal
	if errors.As(err, &r) {
		fmt.Fprint(a.Stderr, r.text)
		fmt.Fprint(a.Stderr, r.hint)
		return 2
	}
	var exited Exited
	if errors.As(err, &exited) {
		return int(exited)
	}
	f := a.explain(err)
	if a.Json {
		line := event.AppendString([]byte(`{"error":`), f.What)
		line = event.AppendString(append(line, `,"suggestion":`...), f.Fix)
		fmt.Fprintf(a.Stderr, "%s}\n", line)
		return f.Code
	}
	fmt.Fprintf(a.Stderr, "Error: %s - %s\n", terminal.Printable(f.What), terminal.Printable(f.Fix))
	if f.Excerpt != "" && terminal.IsTerminal(a.Stderr) {
		fmt.Fprint(a.Stderr, f.Excerpt)
	}
	return f.Code
}
