package main

import (
	"errors"
	"strings"

	"github.com/alecthomas/kong"
)

// text is a flag or argument with a value. kong would read a flag at the end of
// the line without a value as the empty text; this refuses it.
type text struct {
	value string
	set   bool // given, perhaps as ""
}

// Decode implements kong.MapperValue. Of a repeated flag the last counts.
func (t *text) Decode(ctx *kong.DecodeContext) error {
	token := ctx.Scan.Pop()
	s, ok := token.Value.(string)
	if token.IsEOL() || !ok {
		return errors.New("value is missing")
	}
	t.value, t.set = s, true
	return nil
}

// or returns the value, or def when the flag was not given.
func (t text) or(def string) string {
	if t.set {
		return t.value
	}
	return def
}

// helpFlag ends the parsing before required flags are asked for.
type helpFlag bool

var errHelp = errors.New("help is asked for")

// BeforeReset is called by kong when the flag is given.
func (helpFlag) BeforeReset() error { return errHelp }

// threadFlags are the flags that nearly every verb has.
type threadFlags struct {
	Thread text     `placeholder:"DIR" help:"The thread directory; by default THREAD_DIR, or the one that the working directory is in."`
	Help   helpFlag `short:"h" help:"Show this help."`
}

// jsonFlag is embedded by the verbs that take --json (contract T-06).
type jsonFlag struct {
	JSON bool `name:"json" help:"Print results, and errors on stderr, as JSON."`
}

// newParser returns the parser of one verb. The grammar of a single verb is all
// that is ever built: with all of them it took as long as opening the database.
func newParser(v *verb, cmd command) *kong.Kong {
	k, err := kong.New(cmd,
		kong.Name("thread "+v.name),
		kong.NoDefaultHelp(),
		kong.WithHyphenPrefixedParameters(true), // --content "-5" is content
		kong.Exit(func(int) {}))
	if err != nil {
		panic("cmd/thread: the grammar of " + v.name + " is wrong: " + err.Error())
	}
	return k
}

// parse fills cmd, the grammar of v, from args. The error is errHelp or a usage
// failure.
func (a *app) parse(v *verb, cmd command, args []string) error {
	k := newParser(v, cmd)
	_, err := k.Parse(args)
	a.json = wantsJSON(k.Model.Flags, args)
	if with, ok := cmd.(takesThread); ok && err == nil {
		return useDefaultDir(with.threadFlag())
	}
	if err == nil || errors.Is(err, errHelp) {
		return err
	}
	what, fix, found := strings.Cut(err.Error(), ", did you mean ")
	if len(k.Model.Positional) > 0 && strings.HasPrefix(what, "unknown flag -") && !strings.HasPrefix(what, "unknown flag --") {
		return usage(what, "put -- before an argument that begins with a hyphen")
	}
	if found {
		return usage(what, "did you mean "+fix)
	}
	return usage(what, "see thread "+v.name+" --help")
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
