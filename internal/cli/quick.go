package cli

import (
	"os"
	"reflect"
	"strings"
)

// quick fills cmd from the command lines that nearly every call has: flags of the
// types Text and bool as --flag VALUE, --flag=VALUE and --bool, each once, arguments
// that are Texts, and a command after --. It reports false, and cmd is as it was, for
// everything else, which is kong's to read or to refuse: building kong's parser takes
// longer than the rest of a push does without its syncs. What it reads, it reads as
// kong does (TestParse).
func quick(cmd Command, args []string) bool {
	if os.Getenv("THREAD_QUICK_PARSER") == "off" { // for tests
		return false
	}
	fields, ok := quickFields(nil, reflect.ValueOf(cmd).Elem())
	if !ok {
		return false
	}
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		var f *quickField
		var value string
		switch name, isFlag := strings.CutPrefix(word, "--"); {
		case word == "--":
			f = nextArgument(fields)
			if f == nil || f.into.Type() != words || len(args) == 0 {
				return false
			}
			f.words, args = args, nil
		case !strings.HasPrefix(word, "-"):
			if f, value = nextArgument(fields), word; f == nil || f.into.Type() != text {
				return false
			}
		case isFlag:
			name, assigned, hasValue := strings.Cut(name, "=")
			f, value = flagNamed(fields, name), assigned
			switch {
			case f == nil || f.given || f.into.Kind() == reflect.Bool && hasValue:
				return false
			case f.into.Kind() == reflect.Bool || hasValue:
			case len(args) == 0 || strings.HasPrefix(args[0], "-"):
				return false
			default:
				value, args = args[0], args[1:]
			}
		default:
			return false
		}
		f.given, f.value = true, value
	}
	for i := range fields {
		if fields[i].required && !fields[i].given {
			return false
		}
	}
	for i := range fields {
		fields[i].fill()
	}
	return true
}

// quickField is a flag or an argument of a grammar, and what a command line gives it.
type quickField struct {
	name     string // of a flag, "" of an argument
	required bool
	into     reflect.Value

	given bool
	value string
	words []string // the command after --
}

// quickFields adds the fields of grammar to list. It reports false for a grammar with
// a field that means more than quick knows.
func quickFields(list []quickField, grammar reflect.Value) ([]quickField, bool) {
	for i := range grammar.NumField() {
		f, into := grammar.Type().Field(i), grammar.Field(i)
		ok := f.Type == text || f.Type == words || f.Type.Kind() == reflect.Bool
		switch {
		case f.Type == help:
			continue
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			if list, ok = quickFields(list, into); !ok {
				return nil, false
			}
			continue
		case !ok || !f.IsExported():
			return nil, false
		}
		field := quickField{name: strings.ToLower(f.Name), into: into}
		if name := f.Tag.Get("name"); name != "" {
			field.name = name
		} else if field.name[1:] != f.Name[1:] {
			return nil, false // kong puts hyphens between its words
		}
		_, argument := f.Tag.Lookup("arg")
		_, optional := f.Tag.Lookup("optional")
		_, required := f.Tag.Lookup("required")
		if field.required = required || argument && !optional; argument {
			field.name = ""
		} else if f.Type == words {
			return nil, false
		}
		list = append(list, field)
	}
	return list, true
}

// nextArgument returns the first argument that is not given, nil when there is none.
func nextArgument(fields []quickField) *quickField {
	for i := range fields {
		if f := &fields[i]; f.name == "" && !f.given {
			return f
		}
	}
	return nil
}

func flagNamed(fields []quickField, name string) *quickField {
	for i := range fields {
		if f := &fields[i]; f.name == name && name != "" {
			return f
		}
	}
	return nil
}

// fill puts what is given into the grammar.
func (f *quickField) fill() {
	switch {
	case !f.given:
	case f.into.Type() == text:
		f.into.Set(reflect.ValueOf(Text{Value: f.value, Set: true}))
	case f.into.Type() == words:
		f.into.Set(reflect.ValueOf(f.words))
	default:
		f.into.SetBool(true)
	}
}
