package main

import (
	"errors"
	"fmt"

	"thread/event"
)

// failure is an error in the words of the command line: what went wrong, how to
// fix it, and the exit code (contract T-04, T-05).
type failure struct {
	code      int
	what, fix string
	excerpt   string // further lines, shown on a terminal only
}

func (f *failure) Error() string { return f.what + " - " + f.fix }

// logic is a failure with exit code 1: the command was understood and cannot be
// carried out.
func logic(what, fix string) error { return &failure{code: 1, what: what, fix: fix} }

// usage is a failure with exit code 2: the command line or its input is wrong.
func usage(what, fix string) error { return &failure{code: 2, what: what, fix: fix} }

// report prints err on stderr and returns the exit code.
func (a *app) report(err error) int {
	var r *refusal
	if errors.As(err, &r) {
		fmt.Fprint(a.stderr, r.text)
		if r.hint != "" && isTerminal(a.stderr) {
			fmt.Fprint(a.stderr, r.hint)
		}
		return 2
	}
	f := a.explain(err)
	if a.json {
		line := event.AppendString([]byte(`{"error":`), f.what)
		line = event.AppendString(append(line, `,"suggestion":`...), f.fix)
		fmt.Fprintf(a.stderr, "%s}\n", line)
		return f.code
	}
	fmt.Fprintf(a.stderr, "Error: %s - %s\n", printable(f.what), printable(f.fix))
	if f.excerpt != "" && isTerminal(a.stderr) {
		fmt.Fprint(a.stderr, f.excerpt)
	}
	return f.code
}
