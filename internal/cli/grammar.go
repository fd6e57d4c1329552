package cli

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
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

// All returns the values of a flag that was given several times, in order: of one that was not
// given its default.
func (t *Text) All() (list []string) {
	for ; t != nil; t = t.before {
		list = append(list, t.Value)
	}
	slices.Reverse(list)
	return list
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

var (
	errHelp    = errors.New("help is asked for")
	errVersion = errors.New("the version is asked for")
)

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

// decodeWord takes an argument as it is. kong's own mapper passes it through JSON, which
// replaces what is not valid UTF-8.
func decodeWord(ctx *kong.DecodeContext, target reflect.Value) error {
	var t Text
	if err := t.Decode(ctx); err != nil {
		return err
	}
	target.SetString(t.Value)
	return nil
}

// newParser returns the parser of one verb. The grammar of a single verb is all
// that is ever built: with all of them it took as long as opening the database.
func newParser(v *Verb, cmd Command) *kong.Kong {
	k, err := kong.New(cmd,
		kong.Name("thread "+v.Name),
		kong.NoDefaultHelp(),
		kong.KindMapper(reflect.String, kong.MapperFunc(decodeWord)),
		kong.WithHyphenPrefixedParameters(true), // --content "-5" is content
		kong.Exit(func(int) {}))
	if err != nil {
		panic("cmd/thread: the grammar of " + v.Name + " is wrong: " + err.Error())
	}
	return k
}

// fill takes the steps of kong's Parse except for its hooks and Validate. Those two look
// for methods by their names, and a program that does so carries every exported
// method of every type: 0.7 MB of thread. Of what Validate checks, the grammars here
// have only what is required (TestParse).
func fill(k *kong.Kong, args []string) error {
	c, err := kong.Trace(k, args)
	if err != nil {
		return err
	}
	if err = c.Error; err != nil {
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
	wants := false
	for name, value := range flagsIn(flags, args) {
		if name == "--json" {
			wants = value == "" || value == "true" || value == "1" || value == "yes"
		}
	}
	return wants && slices.ContainsFunc(flags, func(f *kong.Flag) bool { return f.Name == "json" })
}

var (
	text  = reflect.TypeFor[Text]()
	words = reflect.TypeFor[[]string]()
	help  = reflect.TypeFor[HelpFlag]()
)

// asked returns errHelp or errVersion when args ask for one of them where a flag may
// stand, else nil. Before a command the flag may be one of the command.
func asked(model *kong.Application, args []string) error {
	takesCommand := slices.ContainsFunc(model.Positional, func(p *kong.Positional) bool { return p.Target.Type() == words })
	for name := range flagsIn(model.Flags, args) {
		switch {
		case name == "-h" || name == "--help":
			return errHelp
		case (name == "-V" || name == "--version") && !takesCommand:
			return errVersion
		}
	}
	return nil
}

// flagsIn yields what stands in args where a flag may stand, with the value behind =.
// A value of one of flags, and what follows --, is not a flag.
func flagsIn(flags []*kong.Flag, args []string) iter.Seq2[string, string] {
	takesValue := map[string]bool{}
	for _, f := range flags {
		takesValue["--"+f.Name] = !f.IsBool()
		if f.Short != 0 {
			takesValue["-"+string(f.Short)] = !f.IsBool()
		}
	}
	return func(yield func(name, value string) bool) {
		for i := 0; i < len(args) && args[i] != "--"; i++ {
			name, value, hasValue := strings.Cut(args[i], "=")
			if strings.HasPrefix(name, "-") && !yield(name, value) {
				return
			}
			if takesValue[name] && !hasValue {
				i++
			}
		}
	}
}
