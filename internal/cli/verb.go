package cli

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"thread/internal/terminal"
)

// App is one run of a program.
type App struct {
	program *Program

	Stdin  io.Reader
	Out    terminal.Output
	Stderr io.Writer

	verb *Verb // nil before it is known
	Json bool  // errors are JSON

	// What messages speak of, once known.
	Dir      string // the absolute thread directory
	Consumer string // the verb is about it
	Schedule string
	Target   string // the path that is read from or written to also

	warnings []string // printed last, so that an error's JSON is the first line
}

// Command is the grammar of one verb, filled by the parser, and what it does.
type Command interface {
	Run(ctx context.Context, a *App) error
}

// Rule is one line of the table of error words. An empty What stands for the error's
// own text.
type Rule struct {
	Is        error
	Code      int
	What, Fix string
}

// Verb is one command: how it is called, and what its help says.
type Verb struct {
	Name     string // one word, or two for a verb within a group
	Args     string // the positional argument as shown in the usage line
	Summary  string // one line, for the overview
	Details  string // what the help says beyond the summary; may be empty
	Examples string // lines of the Examples block
	Exits    string // lines of an exit code and what it means here; see exitCodes
	Grammar  func() Command

	// Directories is what to do instead with a thread on a server, where the verb is for
	// directories only.
	Directories string
	// Server is set where thread-net has a verb of that name for a thread on a server.
	Server bool

	// Errors are lines of the table of error words for the errors of packages that
	// not every program links. They come before the others.
	Errors func(a *App) []Rule
}

// Entry names a verb. Verb is nil for the verb of another program, of which there is what
// the overview shows. Verbs are variables without code that runs at the start, so that only
// the pages of the verb that is run are read.
type Entry struct {
	Name  string
	Verb  *Verb
	Topic string // where the overview has it

	// Program is who has it, when it is not linked in. A Name of one word then also
	// stands for all verbs of two words that begin with it.
	Program       string
	Source        string // how one comes by Program; "" for the package thread
	Args, Summary string
}

// Show returns the verb, or of another program's what the overview shows.
func (e *Entry) Show() *Verb {
	if e.Verb == nil {
		return &Verb{Name: e.Name, Args: e.Args, Summary: e.Summary}
	}
	return e.Verb
}

// Program is one of the programs: what it is called, and its verbs in the order of
// the overview.
type Program struct {
	name    string
	Entries []Entry
}

// NewProgram returns the program that has the verbs of all the lists. A verb that is
// linked in takes the place of the entry that names its program, and the verbs of a group
// the place of the entry that stands for the group.
func NewProgram(name string, lists ...[]Entry) *Program {
	p := &Program{name: name, Entries: slices.Clone(lists[0])}
	for _, list := range lists[1:] {
		for _, e := range list {
			group, _, _ := strings.Cut(e.Name, " ")
			i := slices.IndexFunc(p.Entries, func(known Entry) bool {
				return known.Name == e.Name || known.Verb == nil && known.Name == group
			})
			switch {
			case i < 0:
				p.Entries = append(p.Entries, e)
			case p.Entries[i].Name == e.Name:
				if e.Verb != nil || p.Entries[i].Verb == nil { // in whichever order they come
					e.Topic = cmp.Or(e.Topic, p.Entries[i].Topic)
					p.Entries[i] = e
				}
			default:
				e.Topic = p.Entries[i].Topic
				p.Entries = slices.Insert(p.Entries, i, e)
			}
		}
	}
	p.Entries = slices.DeleteFunc(p.Entries, func(e Entry) bool { return e.Verb == nil && p.group(e.Name) != nil })
	return p
}

// lookup finds the verb that args begin with and returns it with the remaining
// args, or nil.
func (p *Program) lookup(args []string) (*Entry, []string) {
	for i := range p.Entries {
		e := &p.Entries[i]
		first, second, two := strings.Cut(e.Name, " ")
		switch {
		case first != args[0]:
		case !two:
			return e, args[1:]
		case len(args) > 1 && second == args[1]:
			return e, args[2:]
		}
	}
	return nil, nil
}

// group returns the verbs of two words whose first is word.
func (p *Program) group(word string) (found []*Entry) {
	for i := range p.Entries {
		if first, _, two := strings.Cut(p.Entries[i].Name, " "); two && first == word {
			found = append(found, &p.Entries[i])
		}
	}
	return found
}
