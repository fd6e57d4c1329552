package terminal

import (
	"bytes"
	"encoding/json"

	"thread/event"
)

// compactJSON returns v with its text as it is in events (T-25): encoding/json escapes
// what HTML and old JavaScript could not have.
func compactJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return unescape(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), err
}

// unescape replaces, in place, the escapes of characters that JSON has no need to
// escape.
func unescape(text []byte) []byte {
	out := text[:0]
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			out = append(out, text[i])
			continue
		}
		switch rest := text[i+1:]; {
		case bytes.HasPrefix(rest, []byte("ufffd")):
			out, i = append(out, "\uFFFD"...), i+len("ufffd")
		case bytes.HasPrefix(rest, []byte("u2028")):
			out, i = append(out, "\u2028"...), i+len("u2028")
		case bytes.HasPrefix(rest, []byte("u2029")):
			out, i = append(out, "\u2029"...), i+len("u2029")
		default:
			out, i = append(out, text[i], text[i+1]), i+1
		}
	}
	return out
}

// JSON adds v as one line of JSON. Events are added by Event, which copies less.
func (o *Output) JSON(v any) error {
	text, err := compactJSON(v)
	if err != nil {
		return err
	}
	o.Buf = append(append(o.Buf, o.ofThread(text)...), '\n')
	return o.More()
}

// ofThread returns an object with thread as its first member, where it is about one
// thread of several.
func (o *Output) ofThread(text []byte) []byte {
	if o.Thread == "" {
		return text
	}
	b := event.AppendString([]byte(`{"thread":`), o.Thread)
	return append(append(b, ','), text[len("{"):]...)
}

// JSONWith is JSON with one member more at the end, an event, or null for nil.
func (o *Output) JSONWith(v any, key string, e *event.Event) error {
	text, err := compactJSON(v)
	if err != nil {
		return err
	}
	text = o.ofThread(text)
	o.Buf = append(o.Buf, text[:len(text)-len("}")]...)
	o.Buf = append(append(append(o.Buf, `,"`...), key...), `":`...)
	if e == nil {
		o.Buf = append(o.Buf, "null"...)
	} else {
		o.Buf = e.AppendJSON(o.Buf)
	}
	return o.Text("}\n")
}

// IndentedJSON adds v as JSON that people read, too.
func (o *Output) IndentedJSON(v any) error {
	text, err := compactJSON(v)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return err
	}
	return o.Text(b.String() + "\n")
}

// ReportJSON adds v, a struct, as JSON with a member on each line, and in a member that
// is a list of objects an object on each line.
func (o *Output) ReportJSON(v any) error {
	text, err := compactJSON(v)
	if err != nil {
		return err
	}
	o.Buf = appendReport(o.Buf, text)
	return o.More()
}

// appendReport lays out the compact JSON of an object.
func appendReport(b, compact []byte) []byte {
	var within []byte // the brackets that are open
	objects := false  // the list of the present member has objects
	for i := 0; i < len(compact); i++ {
		c, depth := compact[i], len(within)
		switch c {
		case '"':
			end := stringEnd(compact, i)
			b = append(b, compact[i:end]...)
			i = end - 1
		case '{', '[':
			b, within = append(b, c), append(within, c)
			if depth == 0 {
				b = append(b, "\n  "...)
			}
			if depth == 1 {
				if objects = c == '[' && compact[i+1] == '{'; objects {
					b = append(b, "\n    "...)
				}
			}
		case '}', ']':
			switch within = within[:depth-1]; {
			case depth == 1:
				b = append(b, '\n')
			case depth == 2 && objects:
				b = append(b, "\n  "...)
			}
			b = append(b, c)
		case ',':
			switch b = append(b, c); {
			case depth == 1:
				b = append(b, "\n  "...)
			case depth == 2 && objects:
				b = append(b, "\n    "...)
			case within[depth-1] == '{':
				b = append(b, ' ')
			}
		case ':':
			b = append(b, ": "...)
		default:
			b = append(b, c)
		}
	}
	return append(b, '\n')
}

// stringEnd returns where the string that begins at i ends.
func stringEnd(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}
