package core

import (
	"fmt"
	"strings"

	"thread/filter"
	"thread/internal/cli"
)

// printChecked prints what filter check says of a valid filter. Warnings are part of
// the JSON, and go to stderr otherwise.
func printChecked(a *cli.App, f *filter.Filter) error {
	e := f.Explain()
	if a.Json {
		return a.Out.JSON(struct {
			Valid  bool   `json:"valid"`
			Filter string `json:"filter"`
			filter.Explanation
		}{true, f.Text(), e})
	}
	for _, w := range e.Warnings {
		a.Warn("%s", w)
	}
	return a.Out.Text(explanationText(f.Text(), e))
}

func explanationText(text string, e filter.Explanation) string {
	var b strings.Builder
	columns := strings.Join(e.Columns, ", ")
	if columns == "" {
		columns = "(none)"
	}
	fmt.Fprintf(&b, "Valid filter: %s\nColumns: %s\n", cli.Printable(text), columns)
	writeParts(&b, e.Parts)
	if e.CanFail {
		b.WriteString("Can fail: on an event whose content is not what a function expects\n")
	}
	return b.String()
}

func writeParts(b *strings.Builder, parts []filter.Part) {
	if len(parts) > 0 {
		b.WriteString("Parts:\n")
	}
	for _, p := range parts {
		fmt.Fprintf(b, "  %s\n    %s\n", cli.Printable(p.Text), indexWords(p.Index))
	}
}

func indexWords(index string) string {
	switch index {
	case filter.IndexSeries:
		return "the index answers, without reading events"
	case filter.IndexID:
		return "narrows the range of ids"
	case filter.IndexTime:
		return "narrows the range of times"
	}
	return "looks at every event that the other parts leave"
}
