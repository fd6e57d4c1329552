package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
	"thread/internal/programs"
	"thread/internal/similar"
	"thread/internal/terminal"
)

// start finds the verb and runs it.
func (a *App) start(args []string) error {
	args, err := changeDirectory(args)
	if err != nil {
		return err
	}
	if len(args) > 1 && args[0] == "--verbose" && !strings.HasPrefix(args[1], "-") && args[1] != "help" {
		args = args[1:] // it is about help only
	}
	if len(args) == 0 {
		return &refusal{text: a.program.Overview(false, terminal.TextColumns(a.Stderr))}
	}
	switch args[0] {
	case "-V", "--version", "version":
		return a.Out.Text(Version() + "\n")
	case "-h", "--help", "--verbose", "help":
		return a.help(args)
	case superviseVerb:
		return supervise(context.Background(), args[1:])
	case completeVerb:
		return a.complete(args[1:])
	case manualVerb:
		return a.manual(args[1:])
	}
	e, rest := a.program.lookup(args)
	if e == nil {
		return a.unknown(args)
	}
	if e.Verb == nil {
		return a.become(e, args)
	}
	v := e.Verb
	a.verb = v
	cmd := v.Grammar()
	err = a.parse(v, cmd, rest)
	if err == nil && urlOf(cmd) != "" {
		switch {
		case v.Directories != "":
			return a.forDirectories(v.Directories)
		case servers == nil:
			return a.becomeNet(v, args)
		}
	}
	switch {
	case errors.Is(err, errHelp):
		return a.Out.Text(v.Help(terminal.TextColumns(a.Out.W)))
	case errors.Is(err, errVersion):
		return a.Out.Text(Version() + "\n")
	}
	if err != nil {
		return err
	}
	if err := spareDescriptors(); err != nil {
		return err
	}
	return cmd.Run(context.Background(), a)
}

func (a *App) manual(args []string) error {
	if len(args) != 1 {
		return a.program.invalidCommand(append([]string{manualVerb}, args...))
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	for name, page := range a.program.ManualPages() {
		if err := os.WriteFile(filepath.Join(args[0], name), page, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// finish flushes stdout, reports err and returns the exit code.
func (a *App) finish(err error) int {
	if flushErr := a.Out.Flush(); err == nil {
		err = flushErr
	}
	code := 0
	if err != nil && !errors.Is(err, terminal.ErrReaderGone) {
		code = a.report(err)
	}
	for _, w := range a.warnings {
		fmt.Fprintf(a.Stderr, "Warning: %s\n", terminal.Printable(w))
	}
	return code
}

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

// Open opens the thread directory that a --thread flag names.
func (a *App) Open(dir string, more ...engine.Option) (t *engine.Thread, err error) {
	if err := a.SetDir("--thread", dir); err != nil {
		return nil, err
	}
	// Any command may be the one that finds a scheduled event due.
	more = append(more, engine.WithOnRelease(func(source string) {
		a.NotStarted("a scheduled event is stored", Wake(context.Background(), t, source))
	}))
	t, err = a.OpenAddress(a.Dir, more...)
	return t, err // which the function above has
}

// OpenFor opens the thread directory for a verb about one consumer.
func (a *App) OpenFor(dir, consumer string) (*engine.Thread, error) {
	a.Consumer = consumer
	t, err := a.Open(dir)
	if err == nil {
		err = CheckConsumer(consumer)
	}
	if err == nil && t.URL() != "" {
		servers.Join(t, consumer)
	}
	return t, err
}

// SetDir makes dir, which the flag or argument what names, the directory that messages
// speak of.
func (a *App) SetDir(what, dir string) (err error) {
	if dir == "" {
		return UsageError(what+" is empty", "name a directory")
	}
	switch a.Dir = dir; {
	case !IsURL(dir):
		a.Dir, err = Resolve(dir)
	case servers == nil:
		err = a.forDirectories("")
	}
	return err
}

// refusal is an answer on stderr with exit code 2 that is not of the form
// "Error: …" (T-03).
type refusal struct {
	text string
	hint string // a further line
}

func (r *refusal) Error() string { return r.text }

// unknown is what follows a first word that begins no verb: help about a group of
// verbs, or the program of that name.
func (a *App) unknown(args []string) error {
	if a.program.group(args[0]) != nil {
		switch {
		case len(args) == 1:
			return &refusal{text: a.program.groupOverview(args[0], terminal.TextColumns(a.Stderr))}
		case len(args) == 2 && (args[1] == "-h" || args[1] == "--help"):
			return a.help([]string{"help", args[0]})
		}
		return a.program.invalidCommand(args)
	}
	if path := programs.Find(programs.Prefix + args[0]); path != "" {
		return a.replaceBy(path, args[1:])
	}
	return a.program.invalidCommand(args)
}

// OwnDir is SetDir for what only the account may do that the thread belongs to: what it
// does was chosen by an account that can write the thread.
func (a *App) OwnDir(dir string) error {
	err := a.SetDir("--thread", dir)
	if err == nil && IsThread(a.Dir) {
		err = dispatch.Own(a.Dir)
	}
	return err
}

func (p *Program) invalidCommand(args []string) error {
	r := &refusal{text: "Invalid command: " + terminal.Printable(strings.Join(args, " ")) +
		"\nSee --help for available commands.\n"}
	if args[0] == "help" {
		args = args[1:]
	}
	var names []string
	for i := range p.Entries {
		names = append(names, p.Entries[i].Name)
	}
	typed := strings.Join(args[:min(len(args), 2)], " ")
	meant := similar.To(typed, names)
	if meant == "" && len(args) > 1 {
		meant = similar.To(args[0], names)
	}
	switch {
	case len(args) > 0 && habit(args[0]) != "":
		r.hint = habit(args[0]) + "\n"
	case len(args) > 1 && strings.HasPrefix(args[0], "-"):
		r.hint = "Flags stand after the command; only -C DIR stands before it.\n"
	case meant != "":
		r.hint = "Did you mean thread " + meant + "?\n"
	case len(args) > 0 && p.group(args[0]) != nil:
		r.hint = "See thread " + args[0] + " --help.\n"
	}
	return r
}
