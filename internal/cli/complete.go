package cli

import (
	"strings"

	"github.com/alecthomas/kong"

	"thread/internal/terminal"
)

// completeVerb is the hidden subcommand that the completion scripts call: its
// arguments are the words of a command line up to the cursor, without the
// program's name, and the last of them, perhaps empty, is to be completed.
const completeVerb = "__complete"

// complete prints the candidates, one per line: the word, a tab, its help. None
// leaves the word to the shell, which then offers files. It never fails, since
// there is no place for a message on a half-typed line.
func (a *App) complete(words []string) error {
	if len(words) == 0 {
		words = []string{""}
	}
	before, cur := words[:len(words)-1], words[len(words)-1]
	if len(before) > 0 {
		if e, _ := a.program.lookup(before); e != nil && e.Verb == nil {
			return a.become(e, append([]string{completeVerb}, words...))
		}
	}
	for _, c := range a.candidates(before, cur) {
		if !strings.HasPrefix(c.word, cur) || terminal.Printable(c.word) != c.word {
			continue // a line holds no control characters
		}
		if err := a.Out.Text(c.word + "\t" + c.help + "\n"); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns what can stand at cur behind the words before. Some may not
// begin with cur.
func (a *App) candidates(before []string, cur string) []candidate {
	if len(before) == 0 {
		words := a.program.nextWords(nil)
		for _, name := range a.program.added() {
			words = append(words, candidate{name, "A separate program"})
		}
		return append(words, candidate{"help", "Show the help of a command"},
			candidate{"--help", "Show the help"}, candidate{"--version", "Show the version"})
	}
	if before[0] == "help" {
		words := a.program.nextWords(before[1:])
		for _, t := range topics() {
			if len(before) == 1 {
				words = append(words, candidate{t.name, t.title})
			}
		}
		return words
	}
	e, rest := a.program.lookup(before)
	if e == nil || e.Verb == nil {
		return a.program.nextWords(before)
	}
	v := e.Verb
	model := v.Model()
	line := readTyped(model.Flags, rest)
	if line.open != nil {
		return line.values(line.open.Name, line.open.PlaceHolder, cur)
	}
	if name, value, ok := strings.Cut(cur, "="); ok && !line.ended && strings.HasPrefix(name, "--") {
		return line.assigned(model.Flags, name, value)
	}
	if strings.HasPrefix(cur, "-") && !line.ended {
		return line.flags(model.Flags)
	}
	if n := line.positionals; n < len(model.Positional) {
		p := model.Positional[n]
		if p.Name == "path" || p.Name == "source" || p.Name == "target" {
			return directories(cur)
		}
		return line.values(p.Name, p.Tag.PlaceHolder, cur)
	}
	if len(model.Positional) > 0 || line.ended {
		return nil
	}
	return line.flags(model.Flags)
}

// nextWords returns the words that continue words to the name of a verb.
func (p *Program) nextWords(words []string) []candidate {
	var found []candidate
	for _, e := range p.ordered() {
		v := e.Show()
		name := strings.Fields(v.Name)
		if len(name) <= len(words) || strings.Join(name[:len(words)], " ") != strings.Join(words, " ") {
			continue
		}
		c := candidate{name[len(words)], v.Summary}
		if len(name) > len(words)+1 {
			c.help = "A group of commands"
			if n := len(found); n > 0 && found[n-1].word == c.word {
				continue
			}
		}
		found = append(found, c)
	}
	return found
}

// typed is what the words behind a verb say so far.
type typed struct {
	given       map[string]string // the flags, by name without hyphens
	open        *kong.Flag        // the last word, which still wants its value
	positionals int               // how many words are not flags
	ended       bool              // there was a --
}

func readTyped(flags []*kong.Flag, words []string) typed {
	line := typed{given: map[string]string{}}
	for _, word := range words {
		switch {
		case line.open != nil:
			line.given[line.open.Name] = word
			line.open = nil
		case line.ended || !strings.HasPrefix(word, "-") || word == "-":
			line.positionals++
		case word == "--":
			line.ended = true
		default:
			name, value, assigned := strings.Cut(word, "=")
			f := findFlag(flags, name)
			if f == nil {
				continue
			}
			line.given[f.Name] = value
			if !assigned && !f.IsBool() {
				line.open = f
			}
		}
	}
	return line
}

// findFlag returns the flag that word, with its hyphens, names.
func findFlag(flags []*kong.Flag, word string) *kong.Flag {
	for _, f := range flags {
		if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

// flags returns the flags that are not given yet.
func (line *typed) flags(flags []*kong.Flag) []candidate {
	var found []candidate
	for _, f := range flags {
		if _, given := line.given[f.Name]; !given && !f.Hidden {
			found = append(found, candidate{"--" + f.Name, f.Help})
		}
	}
	return found
}

// assigned returns the candidates for a value in the form --flag=value.
func (line *typed) assigned(flags []*kong.Flag, flag, value string) []candidate {
	f := findFlag(flags, flag)
	if f == nil || f.IsBool() {
		return nil
	}
	found := line.values(f.Name, f.PlaceHolder, value)
	for i := range found {
		found[i].word = flag + "=" + found[i].word
	}
	return found
}

// values returns the candidates for the value of a flag or an argument. What it
// can be is read from its name and its placeholder: words in lower case between
// bars are the values themselves.
func (line *typed) values(name, placeholder, cur string) []candidate {
	switch {
	case placeholder == "DIR":
		return directories(cur)
	case name == "consumer":
		return line.consumers()
	case placeholder != "" && strings.ToLower(placeholder) == placeholder:
		var found []candidate
		for word := range strings.SplitSeq(placeholder, "|") {
			found = append(found, candidate{word, ""})
		}
		return found
	}
	return nil
}

// consumers returns the consumers of the thread that the line is about.
func (line *typed) consumers() []candidate {
	value, given := line.given["thread"]
	flag := Text{Value: value, Set: given}
	if UseDefaultDir(&flag) != nil {
		return nil
	}
	dir, err := Resolve(flag.Value)
	if err != nil {
		return nil
	}
	var found []candidate
	for _, s := range (&App{Dir: dir}).subscriptions() {
		found = append(found, candidate{s.Consumer, terminal.Printable(s.Handler)})
	}
	return found
}
