package cli

import (
	"strings"

	"thread/filter"
)

// SeriesFlags are short forms of the filters that are asked for most. Verbs that have
// --filter embed them.
type SeriesFlags struct {
	Source  Text `placeholder:"GLOB" help:"Only events of this source; * stands for any text, ? for a character, [a-z] for one of these."`
	Type    Text `placeholder:"GLOB" help:"Only events of this type, as --source."`
	Subtype Text `placeholder:"GLOB" help:"Only events with this subtype, as --source; '*' for any that have one."`
}

// Given reports whether there is one of the flags.
func (f *SeriesFlags) Given() bool { return f.Source.Set || f.Type.Set || f.Subtype.Set }

// Where returns the filter that --filter and the flags are together, "" for none.
func (f *SeriesFlags) Where(where string) (string, error) {
	if !f.Given() {
		return where, nil
	}
	var parts []string
	for _, c := range []struct {
		column string
		value  Text
	}{{"source", f.Source}, {"type", f.Type}, {"subtype", f.Subtype}} {
		if !c.value.Set {
			continue
		}
		op := " = "
		if strings.ContainsAny(c.value.Value, "*?[") {
			op = " GLOB "
		}
		part := c.column + op + "'" + strings.ReplaceAll(c.value.Value, "'", "''") + "'"
		if _, err := filter.Compile(part); err != nil {
			return "", UsageError("--"+c.column+" "+ShellWord(c.value.Value)+" cannot be looked for", "give a text in UTF-8 without a NUL, of up to 50,000 bytes if there is a * in it")
		}
		parts = append(parts, part)
	}
	if where != "" {
		if _, err := filter.Compile(where); err != nil {
			return "", err // with its place in what was given
		}
		parts = append(parts, "("+filter.Closed(where)+")")
	}
	return strings.Join(parts, " AND "), nil
}
