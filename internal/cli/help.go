package cli

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"thread/internal/programs"
	"thread/internal/terminal"
)

// help answers `thread help [command]`, `thread help -a`, `thread --help` and
// `thread --help --verbose`, in any order of the flags.
func (a *App) help(args []string) error {
	verbose, asked, all := false, false, false
	var topic []string
	for _, arg := range args {
		switch arg {
		case "--verbose":
			verbose = true
		case "-a", "--all":
			all = true
		case "-h", "--help", "help":
			asked = true
		default:
			topic = append(topic, arg)
		}
	}
	if !asked {
		return a.program.invalidCommand(args)
	}
	if len(topic) == 0 {
		text := a.program.Overview(verbose, terminal.TextColumns(a.Out.W))
		if all {
			text += a.program.externalSection(terminal.TextColumns(a.Out.W))
		}
		return a.Out.Text(text)
	}
	if len(topic) == 1 {
		if group := a.program.group(topic[0]); group != nil {
			if !slices.ContainsFunc(group, func(e *Entry) bool { return e.Verb != nil }) {
				return a.become(group[0], []string{"help", topic[0]})
			}
			return a.Out.Text(a.program.groupOverview(topic[0], terminal.TextColumns(a.Out.W)) + "\nSee thread " + topic[0] + " <command> --help.\n")
		}
	}
	if text := a.program.topicOverview(strings.Join(topic, " "), terminal.TextColumns(a.Out.W)); text != "" {
		return a.Out.Text(text)
	}
	e, _ := a.program.lookup(topic) // further words are ignored, as the original does
	if e == nil {
		if path := a.external(topic[0]); path != "" {
			return a.replaceBy(path, append(topic[1:], "--help"))
		}
		return a.program.invalidCommand(args)
	}
	if e.Verb == nil {
		return a.become(e, append([]string{"help"}, topic...))
	}
	return a.Out.Text(e.Verb.Help(terminal.TextColumns(a.Out.W)))
}

// Overview returns the help of the whole program, in lines of that many columns.
func (p *Program) Overview(verbose bool, columns int) string {
	h := helpText{columns: columns}
	h.fill(p.name+" - an event queue that lives in a directory", 0, 0)
	h.b.WriteByte('\n')
	h.fill("Usage: thread <command> [flags]", 0, len("Usage: "))
	h.examples(OverviewExamples)
	more := []item{{topicWhich, "Which one do I use: event, schedule, job, outbox, bridge"}}
	for _, t := range p.Topics() {
		switch {
		case verbose:
			h.section(t.Title+":", t.items())
		case t.Everyday:
			h.section(t.Title+":", t.short())
		default:
			more = append(more, item{t.name, t.Title + ": " + t.names()})
		}
	}
	h.section("More, by topic:", append(more, item{"help [topic|command]", "Show this help, or the help of a topic or a command; with -a also the programs that add commands"}))
	h.section("Flags:", []item{
		{"-C DIR", "Run as if started in DIR; before the command"},
		{"-h, --help", "Show this help; with --verbose also all commands, the files and exit codes"},
		{"-V, --version", "Show the version"},
	})
	h.section("Environment:", environment())
	if verbose {
		h.section("Data layout:", dataLayout())
		h.section("Exit Codes:", exitCodes())
	}
	return h.b.String()
}

// groupOverview returns the verbs of two words that begin with word.
func (p *Program) groupOverview(word string, columns int) string {
	h := helpText{columns: columns}
	h.fill("Usage: thread "+word+" <command> [flags]", 0, len("Usage: "))
	h.section("Commands:", (&Topic{Entries: p.group(word)}).items())
	return h.b.String()
}

// externalSection lists what programs add.
func (p *Program) externalSection(columns int) string {
	h := helpText{columns: columns}
	var found []item
	for _, name := range p.added() {
		found = append(found, item{name, programs.Find(programs.Prefix + name)})
	}
	if len(found) == 0 {
		found = []item{{"(none)", "A program called thread-NAME next to thread or on PATH adds thread NAME"}}
	}
	h.section("Commands of other programs:", found)
	return h.b.String()
}

const OverviewExamples = `thread init ./inbox
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
		{envNetwork, "allow: accept a network file system, where two hosts do not see each other's locks; for directories that only this host uses"},
		{"NO_COLOR", "Set to anything: no colours on a terminal"},
	}
}

func dataLayout() []item {
	return []item{
		{"<dir>/events.db", "the database: events, subscriptions, progress"},
		{"<dir>/events.journal", "changes that events.db does not have yet; part of the database"},
		{"<dir>/events.jsonl", "every event as a line of JSON, for people and grep"},
		{"<dir>/events-<time>.jsonl", "older lines, 10000 or more per file"},
		{"<dir>/run/", "lock files; may be deleted at any time"},
		{"<dir>/logs/thread.log", "what was pushed and which handlers were started"},
		{"<dir>/logs/handlers/", "what the handlers printed"},
	}
}

// exitCodes returns what the verb's exit codes mean. What Exits says of 1 and 2 comes
// next to what these mean for every verb with these flags.
func (v *Verb) exitCodes(model *kong.Application) []item {
	has := func(name string, required bool) bool {
		return slices.ContainsFunc(model.Flags, func(f *kong.Flag) bool { return f.Name == name && (f.Required || !required) })
	}
	fails, usage := "", "wrong usage: a flag, an argument, a number"
	if has("thread", false) {
		fails = "not a thread, or busy"
		if has("consumer", true) {
			fails = "not a thread, no such consumer, or busy"
		}
	}
	if has("filter", false) {
		usage += ", a filter"
	}
	items := []item{{"0", "done"}, {"1", fails}, {"2", usage}}
	for line := range strings.Lines(v.Exits) {
		code, meaning, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case code == "0":
			items[0].meaning = meaning
		case code == "1" && fails != "":
			items[1].meaning = meaning + "; " + fails
		case code == "1":
			items[1].meaning = meaning
		case code == "2":
			items[2].meaning += "; " + meaning
		default:
			items = append(items, item{code, meaning})
		}
	}
	if items[1].meaning == "" {
		items[1].meaning = "stdout cannot be written"
	}
	return items
}

func exitCodes() []item {
	return []item{
		{"0", "done"},
		{"1", "not possible: not a thread, already there, no such consumer, busy"},
		{"2", "wrong usage: flags, numbers, a filter, a line of a batch"},
	}
}

// Help returns the help of one verb, in lines of that many columns. Its flags are
// read from the grammar.
func (v *Verb) Help(columns int) string {
	model := v.Model()
	h := helpText{columns: columns}
	h.fill("Usage: "+v.usageLine(model), 0, len("Usage: "))
	h.b.WriteByte('\n')
	h.fill(v.Summary+".", 0, 0)
	if v.Details != "" {
		h.fill(v.Details, 0, 0)
	}
	h.examples(v.Examples)
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
			flags = append(flags, item{FlagWords(f), flagHelp(f)})
		}
	}
	h.section("Flags:", flags)
	h.section("Exit codes:", v.exitCodes(model))
	return h.b.String()
}

// Model returns the verb's flags and arguments.
func (v *Verb) Model() *kong.Application { return newParser(v, v.Grammar()).Model }

// usageLine returns the verb with its flags and arguments, those that may be left
// out in brackets.
func (v *Verb) usageLine(model *kong.Application) string {
	line := "thread " + v.Name
	for _, f := range model.Flags {
		switch {
		case f.Required:
			line += " " + flagSyntax(f)
		case f.Name == "thread":
			line += " [" + flagSyntax(f) + "]" // it has a default
		}
	}
	if v.Args != "" {
		line += " " + v.Args
	}
	return line + " [flags]"
}

// FlagWords returns the flag as its help and manual name it.
func FlagWords(f *kong.Flag) string {
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

// helpText is a help under construction, in lines of at most columns letters.
type helpText struct {
	b       strings.Builder
	columns int
}

// Terms up to widestTerm stand next to their meaning, longer ones above it. Below
// narrowest columns they all do.
const (
	widestTerm = 24
	Narrowest  = 60
)

// section adds a headline and items with their meanings in one column.
func (h *helpText) section(title string, items []item) {
	h.b.WriteByte('\n')
	h.fill(title, 0, 0)
	width := 0
	for _, it := range items {
		if n := utf8.RuneCountInString(it.term); n <= widestTerm {
			width = max(width, n)
		}
	}
	for _, it := range items {
		n := utf8.RuneCountInString(it.term)
		if h.columns < Narrowest && width > 4 {
			h.b.WriteString("  " + it.term + "\n")
			h.fill(it.meaning, 6, 6)
			continue
		}
		if h.b.WriteString("  " + it.term); n > width {
			h.b.WriteString("\n")
			h.fill(it.meaning, width+4, width+4)
			continue
		}
		h.b.WriteString(strings.Repeat(" ", width-n+2))
		h.hang(it.meaning, width+4, width+4)
	}
}

// examples adds lines that stay as they are, so that they can be copied.
func (h *helpText) examples(lines string) {
	h.b.WriteString("\nExamples:\n  " + strings.ReplaceAll(lines, "\n", "\n  ") + "\n")
}

// fill adds a paragraph whose first line begins after that many spaces, and the
// others after hang.
func (h *helpText) fill(text string, first, hang int) {
	h.b.WriteString(strings.Repeat(" ", first))
	h.hang(text, first, hang)
}

// hang adds a paragraph whose first line has used letters already.
func (h *helpText) hang(text string, used, hang int) {
	at := used
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > h.columns:
			h.b.WriteString("\n" + strings.Repeat(" ", hang))
			at = hang
		default:
			h.b.WriteByte(' ')
			at++
		}
		h.b.WriteString(word)
		at += n
	}
	h.b.WriteByte('\n')
}
