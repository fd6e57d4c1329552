package cli

import "fmt"

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
