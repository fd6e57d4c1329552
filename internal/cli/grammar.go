package cli

import (
	"errors"
	"strings"

	"github.com/alecthomas/kong"
)

// Text is a flag or argument with a value. kong would read a flag at the end of
// the line without a value as the empty text; this refuses it.
type Text struct {
	Value string
	Set   bool // given, perhaps as ""
}

// Decode implements kong.MapperValue. Of a repeated flag the last counts.
func (t *Text) Decode(ctx *kong.DecodeContext) error {
	token := ctx.Scan.Pop()
	s, ok := token.Value.(string)
	if token.IsEOL() || !ok {
		return errors.New("value is missing")
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

// HelpFlag ends the parsing before required flags are asked for.
type HelpFlag bool

var errHelp = errors.New("help is asked for")

// BeforeReset is called by kong when the flag is given.
func (HelpFlag) BeforeReset() error { return errHelp }

// ThreadFlags are the flags that nearly every verb has.
type ThreadFlags struct {
	Thread Text     `placeholder:"DIR" help:"The thread directory; by default THREAD_DIR, or the one that the working directory is in."`
	Help   HelpFlag `short:"h" help:"Show this help."`
}

// JSONFlag is embedded by the verbs that take --json (T-06).
type JSONFlag struct {
	JSON bool `name:"json" help:"Print results, and errors on stderr, as JSON."`
}

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
	k := newParser(v, cmd)
	_, err := k.Parse(args)
	a.Json = wantsJSON(k.Model.Flags, args)
	if with, ok := cmd.(takesThread); ok && err == nil {
		return UseDefaultDir(with.threadFlag())
	}
	if err == nil || errors.Is(err, errHelp) {
		return err
	}
	what, fix, found := strings.Cut(err.Error(), ", did you mean ")
	if len(k.Model.Positional) > 0 && strings.HasPrefix(what, "unknown flag -") && !strings.HasPrefix(what, "unknown flag --") {
		return UsageError(what, "put -- before an argument that begins with a hyphen")
	}
	if found {
		return UsageError(what, "did you mean "+fix)
	}
	return UsageError(what, "see thread "+v.Name+" --help")
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
