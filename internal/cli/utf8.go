package cli

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// checkText refuses text that is not valid UTF-8: stored or compared it would be another
// text. The rule holds for the values of all flags and for all arguments, except for these:
//
//   - Paths are bytes.
//   - A command behind -- that this process runs gets its arguments as they are.
//   - push replaces and counts what is wrong in an event, or refuses it with --strict.
func checkText(v *Verb, args []string) error {
	if !slices.ContainsFunc(args, func(s string) bool { return !utf8.ValidString(s) }) {
		return nil
	}
	model := newParser(v, v.Grammar()).Model
	flags := map[string]*kong.Flag{}
	for _, f := range model.Flags {
		flags["--"+f.Name] = f
		if f.Short != 0 {
			flags["-"+string(f.Short)] = f
		}
	}
	positional := model.Positional
	for i := 0; i < len(args); i++ {
		name, value, hasValue := strings.Cut(args[i], "=")
		f := flags[name]
		switch {
		case args[i] == "--":
			return checkCommand(positional, args[i+1:])
		case f == nil && len(positional) > 0:
			if !utf8.ValidString(args[i]) && !isPath(positional[0].Name) {
				return notText(strings.ToUpper(positional[0].Name))
			}
			if positional[0].Target.Type() != words {
				positional = positional[1:]
			}
			continue
		case f == nil || f.IsBool():
			continue
		case !hasValue && i+1 < len(args):
			i++
			value = args[i]
		}
		if utf8.ValidString(value) || isPath(f.PlaceHolder) || v.Name == "push" && isEventText(f.Name) {
			continue
		}
		return notText("--" + f.Name)
	}
	return nil
}

// checkCommand checks the words behind --. Words of a command that is run now are bytes;
// subscribe stores its command and checks it.
func checkCommand(positional []*kong.Positional, rest []string) error {
	for _, word := range rest {
		if len(positional) == 0 || positional[0].Target.Type() == words {
			return nil
		}
		if !utf8.ValidString(word) && !isPath(positional[0].Name) {
			return notText(strings.ToUpper(positional[0].Name))
		}
		positional = positional[1:]
	}
	return nil
}

// CheckStoredCommand refuses a command that is stored as text and is not valid UTF-8.
func CheckStoredCommand(command []string) error {
	for _, word := range command {
		if !utf8.ValidString(word) {
			return notText("the command behind --")
		}
	}
	return nil
}

func notText(what string) error {
	return UsageError(what+" is not valid UTF-8", "give text in UTF-8, and encode binary content, for example with base64")
}

// isPath reports whether a placeholder, or the name of an argument, stands for a path.
func isPath(name string) bool {
	for _, part := range []string{"DIR", "FILE", "PATH", "ADDRESS"} {
		if strings.Contains(strings.ToUpper(name), part) {
			return true
		}
	}
	return name == "source" // of import
}

// isEventText reports whether a flag of push is stored in the event.
func isEventText(flag string) bool {
	return slices.Contains([]string{"source", "type", "subtype", "content"}, flag)
}
