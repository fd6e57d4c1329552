package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"thread/engine"
)

// app is one run of the program.
type app struct {
	stdin  io.Reader
	out    output
	stderr io.Writer

	verb     string   // the verb as typed, for hints; empty before it is known
	dir      string   // the absolute thread directory once known, for messages
	json     bool     // errors are JSON
	warnings []string // printed last, so that an error's JSON is the first line
}

// command is the grammar of one verb, filled by the parser, and what it does.
type command interface {
	run(ctx context.Context, a *app) error
}

// start finds the verb and runs it.
func (a *app) start(args []string) error {
	if len(args) == 0 {
		return &refusal{text: overview(false, textColumns(a.stderr))}
	}
	switch args[0] {
	case "-V", "--version":
		return a.out.text(version() + "\n")
	case "-h", "--help", "--verbose", "help":
		return a.help(args)
	case superviseVerb:
		return supervise(context.Background(), args[1:])
	case completeVerb:
		return a.complete(args[1:])
	case manualVerb:
		return a.manual(args[1:])
	}
	v, rest := lookup(args)
	if v == nil && groupOf(args[0]) != nil && len(args) == 2 && (args[1] == "-h" || args[1] == "--help") {
		return a.help([]string{"help", args[0]})
	}
	if v == nil {
		return invalidCommand(args)
	}
	a.verb = v.name
	cmd := v.grammar()
	err := a.parse(v, cmd, rest)
	if errors.Is(err, errHelp) {
		return a.out.text(v.help(textColumns(a.out.w)))
	}
	if err != nil {
		return err
	}
	if err := spareDescriptors(); err != nil {
		return err
	}
	return cmd.run(context.Background(), a)
}

// finish flushes stdout, reports err and returns the exit code.
func (a *app) finish(err error) int {
	if flushErr := a.out.flush(); err == nil {
		err = flushErr
	}
	code := 0
	if err != nil && !errors.Is(err, errReaderGone) {
		code = a.report(err)
	}
	for _, w := range a.warnings {
		fmt.Fprintf(a.stderr, "Warning: %s\n", printable(w))
	}
	return code
}

// warn keeps a warning for the end of the run.
func (a *app) warn(format string, args ...any) {
	a.warnings = append(a.warnings, fmt.Sprintf(format, args...))
}

// open opens the thread directory that a --thread flag names.
func (a *app) open(dir string) (t *engine.Thread, err error) {
	if err := a.setDir("--thread", dir); err != nil {
		return nil, err
	}
	// Any command may be the one that finds a scheduled event due.
	t, err = engine.Open(a.dir, engine.WithOnRelease(func(source string) {
		if err := wake(context.Background(), t, source); err != nil {
			a.logWarning("a scheduled event is stored, but no handler could be started: %v; run thread dispatch --thread %s", err, a.dir)
		}
	}))
	return t, err
}

// openFor opens the thread directory for a verb about one consumer.
func (a *app) openFor(dir, consumer string) (*engine.Thread, error) {
	t, err := a.open(dir)
	if err == nil {
		err = checkConsumer(consumer)
	}
	return t, err
}

func (a *app) setDir(what, dir string) (err error) {
	if dir == "" {
		return usage(what+" is empty", "name a directory")
	}
	a.dir, err = resolve(dir)
	return err
}

// refusal is an answer on stderr with exit code 2 that is not of the form
// "Error: …" (contract T-03).
type refusal struct {
	text string
	hint string // a further line, shown on a terminal only
}

func (r *refusal) Error() string { return r.text }

func invalidCommand(args []string) error {
	r := &refusal{text: "Invalid command: " + printable(strings.Join(args, " ")) +
		"\nSee --help for available commands.\n"}
	if args[0] == "help" {
		args = args[1:]
	}
	var names []string
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	typed := strings.Join(args[:min(len(args), 2)], " ")
	meant := similar(typed, names)
	if meant == "" && len(args) > 1 {
		meant = similar(args[0], names)
	}
	switch {
	case meant != "":
		r.hint = "Did you mean thread " + meant + "?\n"
	case len(args) > 0 && groupOf(args[0]) != nil:
		r.hint = "See thread " + args[0] + " --help.\n"
	}
	return r
}
