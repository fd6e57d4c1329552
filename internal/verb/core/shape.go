package core

import (
	"bytes"
	"encoding/json"

	"thread/event"
	"thread/internal/cli"
)

// parseFlag is of verbs that print events as JSON.
type parseFlag struct {
	Parse bool `help:"Print content that is JSON as JSON, not as a string of it."`
}

// shapeFlags are how events are printed.
type shapeFlags struct {
	parseFlag
	ContentOnly bool `name:"content-only" help:"Print the content alone, each with a newline behind it."`
	Null        bool `name:"null" short:"0" help:"With --content-only, a zero byte behind each instead: a content may have lines."`
}

// show prints an event as the flags say.
func (s *shapeFlags) show(a *cli.App, e *event.Event) error {
	if s.ContentOnly {
		a.Out.Buf = append(append(a.Out.Buf, e.Content...), separator(s.Null))
		return a.Out.More()
	}
	return s.parseFlag.show(a, e)
}

// check says what is wrong with the flags.
func (s *shapeFlags) check() error {
	switch {
	case s.Null && !s.ContentOnly:
		return cli.UsageError("-0 needs --content-only", "add it, or leave -0 out")
	case s.Parse && s.ContentOnly:
		return cli.UsageError("--parse and --content-only exclude each other", "give one of them")
	}
	return nil
}

// show prints an event on a line.
func (s parseFlag) show(a *cli.App, e *event.Event) error {
	if !s.Parse {
		return a.Out.Event(e)
	}
	a.Out.Buf = append(appendParsed(a.Out.Buf, e), '\n')
	return a.Out.More()
}

// append appends the JSON of an event.
func (s parseFlag) append(b []byte, e *event.Event) []byte {
	if s.Parse {
		return appendParsed(b, e)
	}
	return e.AppendJSON(b)
}

// separator is what stands behind each content.
func separator(null bool) byte {
	if null {
		return 0
	}
	return '\n'
}

// appendParsed appends the JSON of an event, with content that is JSON as it is, on one
// line.
func appendParsed(b []byte, e *event.Event) []byte {
	var content bytes.Buffer
	if json.Compact(&content, []byte(e.Content)) != nil {
		return e.AppendJSON(b)
	}
	rest := *e
	rest.Content = ""
	b = rest.AppendJSON(b)
	b = append(b[:len(b)-len(`""}`)], content.Bytes()...)
	return append(b, '}')
}
