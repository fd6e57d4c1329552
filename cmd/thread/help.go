package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// help answers `thread help [command]`, `thread --help` and `thread --help
// --verbose`, in any order of the flags.
func (a *app) help(args []string) error {
	verbose, asked := false, false
	var topic []string
	for _, arg := range args {
		switch arg {
		case "--verbose":
			verbose = true
		case "-h", "--help", "help":
			asked = true
		default:
			topic = append(topic, arg)
		}
	}
	if !asked {
		return invalidCommand(args)
	}
	if len(topic) == 0 {
		return a.out.text(overview(verbose))
	}
	if len(topic) == 1 && groupOf(topic[0]) != nil {
		var texts []string
		for _, v := range groupOf(topic[0]) {
			texts = append(texts, v.help())
		}
		return a.out.text(strings.Join(texts, "\n"))
	}
	v, rest := lookup(topic)
	if v == nil || len(rest) > 0 {
		return invalidCommand(args)
	}
	return a.out.text(v.help())
}

// overview returns the help of the whole program.
func overview(verbose bool) string {
	var b strings.Builder
	b.WriteString(`thread - an event queue that lives in a directory

Usage: thread <command> [flags]

Commands:
`)
	for _, v := range verbs() {
		fmt.Fprintf(&b, "  %-20s %s\n", strings.TrimSpace(v.name+" "+v.args), v.summary)
	}
	b.WriteString(`  help [command]       Show this help, or that of a command

Flags:
  -h, --help           Show this help; with --verbose also the files and exit codes
  -V, --version        Show the version

`)
	b.WriteString(environment + "\nExamples:\n  " + strings.ReplaceAll(overviewExamples, "\n", "\n  ") + "\n")
	if verbose {
		b.WriteString("\n" + dataLayout + "\n" + exitCodes)
	}
	return b.String()
}

const overviewExamples = `thread init ./inbox
thread subscribe --thread ./inbox --consumer worker --handler "./work.sh"
thread push --thread ./inbox --source self --type message --content "hello"
thread pop --thread ./inbox --consumer worker --last-event-id 0
thread info --thread ./inbox`

const environment = `Environment:
  THREAD_DIR           The thread when there is no --thread; without both it is the directory,
                       here or above, that is one
  THREAD_DISPATCH      Who starts handlers after a push: auto (the notifier command if there is
                       one, else spawn), notifier, spawn (thread dispatch, detached) or none
  NO_COLOR             Set to anything: no colours on a terminal
`

const dataLayout = `Data layout:
  <dir>/events.db              the database: events, subscriptions, progress
  <dir>/events.jsonl           every event as a line of JSON, for eyes and grep
  <dir>/events-<time>.jsonl    older lines, 10000 or more per file
  <dir>/run/                   lock files; may be deleted at any time
  <dir>/logs/thread.log        what was pushed and which handlers were started
  <dir>/logs/handlers/         what the handlers printed
`

const exitCodes = `Exit codes:
  0  done
  1  not possible: not a thread, already there, no such consumer, busy
  2  wrong usage: flags, numbers, a filter, a line of a batch
`

// help returns the help of one verb. Its flags are read from the grammar.
func (v *verb) help() string {
	model := newParser(v, v.grammar()).Model
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s\n\n%s.\n", v.usageLine(model), v.summary)
	if v.details != "" {
		fmt.Fprintf(&b, "%s\n", v.details)
	}
	if len(model.Positional) > 0 {
		b.WriteString("\nArguments:\n")
		for _, p := range model.Positional {
			fmt.Fprintf(&b, "  %-22s  %s\n", "<"+p.Name+">", p.Help)
		}
	}
	b.WriteString("\nFlags:\n")
	for _, f := range model.Flags {
		fmt.Fprintf(&b, "  %-22s  %s\n", flagWords(f), flagHelp(f))
	}
	b.WriteString("\nExamples:\n")
	for _, example := range strings.Split(v.examples, "\n") {
		fmt.Fprintf(&b, "  %s\n", example)
	}
	b.WriteString("\n" + exitCodes)
	return b.String()
}

// usageLine returns the verb with its flags and arguments, those that may be left
// out in brackets.
func (v *verb) usageLine(model *kong.Application) string {
	line := "thread " + v.name
	for _, f := range model.Flags {
		switch {
		case f.Required:
			line += " " + flagSyntax(f)
		case f.Name == "thread":
			line += " [" + flagSyntax(f) + "]" // it has a default
		}
	}
	if v.args != "" {
		line += " " + v.args
	}
	return line + " [flags]"
}

// flagWords returns the flag as its help and manual name it.
func flagWords(f *kong.Flag) string {
	if f.Short != 0 {
		return fmt.Sprintf("-%c, %s", f.Short, flagSyntax(f))
	}
	return flagSyntax(f)
}

func flagHelp(f *kong.Flag) string {
	if f.Required {
		return f.Help + " Required."
	}
	return f.Help
}

func flagSyntax(f *kong.Flag) string {
	if f.IsBool() {
		return "--" + f.Name
	}
	return "--" + f.Name + " " + f.PlaceHolder
}
