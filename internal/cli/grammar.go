package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Text is a flag or argument with a value. kong would read a flag at the end of
// the line without a value as the empty text; this refuses it.
type Text struct {
	Value string
	Set   bool // given, perhaps as ""

	before *Text // the same flag, given before
}

// Decode implements kong.MapperValue. Of a repeated flag the last counts, but see RootFlag.
func (t *Text) Decode(ctx *kong.DecodeContext) error {
	token := ctx.Scan.Pop()
	s, ok := token.Value.(string)
	if token.IsEOL() || !ok {
		return errors.New("value is missing")
	}
	if t.Set {
		before := *t
		t.before = &before
	}
	t.Value, t.Set = s, true
	return nil
}

// Or returns the value, or def when the flag was not given.
func (t Text) Or(def string) string {
	if t.Set {
		return t.Value
	}
	return def
}

// HelpFlag is asked for before anything else is: what is missing then does not matter.
type HelpFlag bool

var errHelp = errors.New("help is asked for")

// ThreadFlags are the flags that nearly every verb has.
type ThreadFlags struct {
	Thread Text     `placeholder:"DIR" help:"The thread directory; by default THREAD_DIR, or the one that the working directory is in."`
	Help   HelpFlag `short:"h" help:"Show this help."`
}

// JSONFlag is embedded by the verbs that take --json (T-06).
type JSONFlag struct {
	JSON bool `name:"json" help:"Print results, and errors on stderr, as JSON."`
}

// takesJSON is a grammar with the flag --json.
type takesJSON interface{ wantsJSON() bool }

func (f *JSONFlag) wantsJSON() bool { return f.JSON }

// newParser returns the parser of one verb. The grammar of a single verb is all
// that is ever built: with all of them it took as long as opening the database.
func newParser(v *Verb, cmd Command) *kong.Kong {
	k, err := kong.New(cmd,
		kong.Name("thread "+v.Name),
		kong.NoDefaultHelp(),
		kong.WithHyphenPrefixedParameters(true), // --content "-5" is content
		kong.Exit(func(int) {}))
	if err != nil {
		panic("cmd/thread: the grammar of " + v.Name + " is wrong: " + err.Error())
	}
	return k
}

// parse fills cmd, the grammar of v, from args. The error is errHelp or a usage
// failure.
func (a *App) parse(v *Verb, cmd Command, args []string) error {
	if quick(cmd, args) {
		if with, ok := cmd.(takesJSON); ok {
			a.Json = with.wantsJSON()
		}
		return defaultDir(cmd)
	}
	k := newParser(v, cmd)
	err := fill(k, args)
	a.Json = wantsJSON(k.Model.Flags, args)
	if err == nil {
		return defaultDir(cmd)
	}
	if errors.Is(err, errHelp) {
		return err
	}
	what, fix, found := strings.Cut(err.Error(), ", did you mean ")
	if len(k.Model.Positional) > 0 && strings.HasPrefix(what, "unknown flag -") && !strings.HasPrefix(what, "unknown flag --") {
		return UsageError(what, "put -- before an argument that begins with a hyphen")
	}
	if found && fix != `"-h"?` { // as near to two letters as anything
		return UsageError(what, "did you mean "+fix)
	}
	return UsageError(what, "see thread "+v.Name+" --help")
}

// fill takes the steps of kong's Parse but for its hooks and Validate. Those two look
// for methods by their names, and a program that does so carries every exported
// method of every type: 0.7 MB of thread. Of what Validate checks, the grammars here
// have only what is required (TestParse).
func fill(k *kong.Kong, args []string) error {
	c, err := kong.Trace(k, args)
	if err == nil {
		err = c.Error
	}
	if err != nil {
		return err
	}
	for _, p := range c.Path {
		if p.Flag != nil && p.Flag.Name == "help" {
			return errHelp
		}
	}
	if err := c.Reset(); err != nil {
		return err
	}
	if _, err := c.Apply(); err != nil {
		return err
	}
	return missing(k.Model)
}

// missing says in kong's words which required flags and arguments were not given.
func missing(model *kong.Application) error {
	var flags, arguments []string
	for _, f := range model.Flags {
		if f.Required && !f.Set {
			flags = append(flags, f.Summary())
		}
	}
	if len(flags) > 0 {
		slices.Sort(flags)
		return errors.New("missing flags: " + strings.Join(flags, ", "))
	}
	for _, p := range model.Positional {
		if p.Required && !p.Set {
			arguments = append(arguments, p.Summary())
		}
	}
	if len(arguments) > 0 {
		return fmt.Errorf("expected %q", strings.Join(arguments, " "))
	}
	return nil
}

// wantsJSON reports whether --json is among args where a flag may stand. It is
// asked also after a parsing error, when the grammar's own field is not filled.
func wantsJSON(flags []*kong.Flag, args []string) bool {
	takesValue := map[string]bool{}
	known := false
	for _, f := range flags {
		takesValue["--"+f.Name] = !f.IsBool()
		known = known || f.Name == "json"
	}
	wants := false
	for i := 0; known && i < len(args) && args[i] != "--"; i++ {
		switch name, value, hasValue := strings.Cut(args[i], "="); {
		case name == "--json":
			wants = !hasValue || value == "true" || value == "1" || value == "yes"
		case takesValue[name] && !hasValue:
			i++
		}
	}
	return wants
}
