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
		return a.out.text(overview(verbose, textColumns(a.out.w)))
	}
	if len(topic) == 1 && groupOf(topic[0]) != nil {
		var texts []string
		for _, v := range groupOf(topic[0]) {
			texts = append(texts, v.help(textColumns(a.out.w)))
		}
		return a.out.text(strings.Join(texts, "\n"))
	}
	v, rest := lookup(topic)
	if v == nil || len(rest) > 0 {
		return invalidCommand(args)
	}
	return a.out.text(v.help(textColumns(a.out.w)))
}

// overview returns the help of the whole program, in lines of that many columns.
func overview(verbose bool, columns int) string {
	h := helpText{columns: columns}
	h.fill("thread - an event queue that lives in a directory", 0, 0)
	h.b.WriteByte('\n')
	h.fill("Usage: thread <command> [flags]", 0, len("Usage: "))
	h.examples(overviewExamples)
	var commands []item
	for _, v := range verbs() {
		commands = append(commands, item{strings.TrimSpace(v.name + " " + v.args), v.summary})
	}
	h.section("Commands:", append(commands, item{"help [command]", "Show this help, or that of a command"}))
	h.section("Flags:", []item{
		{"-h, --help", "Show this help; with --verbose also the files and exit codes"},
		{"-V, --version", "Show the version"},
	})
	h.section("Environment:", environment())
	if verbose {
		h.section("Data layout:", dataLayout())
		h.section("Exit Codes:", exitCodes())
	}
	return h.b.String()
}

const overviewExamples = `thread init ./inbox
thread subscribe --thread ./inbox --consumer worker --handler "./work.sh"
thread push --thread ./inbox --source self --type message --content "hello"
thread pop --thread ./inbox --consumer worker --last-event-id 0
thread info --thread ./inbox`

// item is a term and what it means.
type item struct{ term, meaning string }

// These are functions because lists at package level would be built at every start
// of the program.

func environment() []item {
	return []item{
		{"THREAD_DIR", "The thread when there is no --thread; without both it is the directory, here or above, that is one"},
		{"THREAD_DISPATCH", "Who starts handlers after a push: auto (the notifier command if there is one, else spawn), notifier, spawn (thread dispatch, detached) or none"},
		{"THREAD_NETWORK", "allow: go on on a network file system, where two hosts do not see each other's locks; for directories that this host alone uses"},
		{"NO_COLOR", "Set to anything: no colours on a terminal"},
	}
}

func dataLayout() []item {
	return []item{
		{"<dir>/events.db", "the database: events, subscriptions, progress"},
		{"<dir>/events.jsonl", "every event as a line of JSON, for eyes and grep"},
		{"<dir>/events-<time>.jsonl", "older lines, 10000 or more per file"},
		{"<dir>/run/", "lock files; may be deleted at any time"},
		{"<dir>/logs/thread.log", "what was pushed and which handlers were started"},
		{"<dir>/logs/handlers/", "what the handlers printed"},
	}
}

func exitCodes() []item {
	return []item{
		{"0", "done"},
		{"1", "not possible: not a thread, already there, no such consumer, busy"},
		{"2", "wrong usage: flags, numbers, a filter, a line of a batch"},
	}
}

// help returns the help of one verb, in lines of that many columns. Its flags are
// read from the grammar.
func (v *verb) help(columns int) string {
	model := newParser(v, v.grammar()).Model
	h := helpText{columns: columns}
	h.fill("Usage: "+v.usageLine(model), 0, len("Usage: "))
	h.b.WriteByte('\n')
	h.fill(v.summary+".", 0, 0)
	if v.details != "" {
		h.fill(v.details, 0, 0)
	}
	h.examples(v.examples)
	if len(model.Positional) > 0 {
		var arguments []item
		for _, p := range model.Positional {
			arguments = append(arguments, item{"<" + p.Name + ">", p.Help})
		}
		h.section("Arguments:", arguments)
	}
	var flags []item
	for _, f := range model.Flags {
		if !f.Hidden {
			flags = append(flags, item{flagWords(f), flagHelp(f)})
		}
	}
	h.section("Flags:", flags)
	h.section("Exit codes:", exitCodes())
	return h.b.String()
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
