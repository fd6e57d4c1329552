package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"thread/event"
)

// columns goes through the columns of a row in their order. One walk serves both
// directions, so that what is written and what is read cannot differ.
type columns struct {
	decode bool
	nulls  bool // write the columns that are empty, as null
	b      []byte
	in     map[string]json.RawMessage
	rest   []byte // where in is nil: what of the text is not read yet
	err    error

	compact *compact // where it is not JSON
}

// rowField is a column of a row.
type rowField struct {
	name string
	null bool // a number that is null when it is 0
}

// rowFields are the columns of each type of row: the fields in their order, named as the
// field, in lower case with underscores, or by the tag column.
var rowFields sync.Map // of []rowField by reflect.Type

func fieldsOf(t reflect.Type) []rowField {
	if known, ok := rowFields.Load(t); ok {
		return known.([]rowField)
	}
	list := make([]rowField, t.NumField())
	for i := range list {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("column"), ",")
		list[i] = rowField{name: name, null: options == "opt"}
		for j, c := range f.Name {
			if name != "" {
				break
			}
			if j > 0 && c < 'a' && f.Name[j-1] >= 'a' {
				list[i].name += "_"
			}
			list[i].name += strings.ToLower(string(c))
		}
	}
	rowFields.Store(t, list)
	return list
}

// walk goes through the columns of a row, or of a *Record.
func walk(r any, c *columns) {
	row := reflect.ValueOf(r).Elem()
	for i, f := range fieldsOf(row.Type()) {
		switch v := row.Field(i).Addr().Interface().(type) {
		case *string:
			c.text(f.name, v)
		case *json.RawMessage:
			c.value(f.name, v)
		case *time.Time:
			c.at(f.name, v)
		case *bool:
			c.flag(f.name, v)
		case *int64:
			c.number(f.name, v, f.null)
		}
	}
}

// column returns where the column of that name is, nil where the row has none.
func column(r Row, name string) any {
	row := reflect.ValueOf(r).Elem()
	for i, f := range fieldsOf(row.Type()) {
		if f.name == name {
			return row.Field(i).Addr().Interface()
		}
	}
	return nil
}

func textOf(r Row, name string) *string {
	text, _ := column(r, name).(*string)
	return text
}

// name begins a column that has a value.
func (c *columns) name(name string) {
	if c.b[len(c.b)-1] != '{' {
		c.b = append(c.b, ',')
	}
	c.b = append(append(append(c.b, '"'), name...), `":`...)
}

// skip writes a column that is empty.
func (c *columns) skip(name string) {
	if c.nulls {
		c.name(name)
		c.b = append(c.b, "null"...)
	}
}

// take returns the value of a column that is read, nil when it has none.
func (c *columns) take(name string) json.RawMessage {
	if c.in == nil {
		return c.next(name)
	}
	v := c.in[name]
	if string(v) == "null" {
		return nil
	}
	return v
}

// failed remembers the first error.
func (c *columns) failed(name string, err error) {
	if err != nil && c.err == nil {
		c.err = invalidf("column %s: %v", name, err)
	}
}

// text is a column of text; "" is null.
func (c *columns) text(name string, v *string) {
	switch {
	case c.compact != nil && c.decode:
		s, err := c.compact.bytes()
		*v = s
		c.failed(name, err)
	case c.compact != nil:
		c.compact.putText(*v)
	case c.decode:
		*v = ""
		if raw := c.take(name); raw != nil {
			c.failed(name, unquote(raw, v))
		}
	case *v == "":
		c.skip(name)
	default:
		c.name(name)
		c.b = event.AppendString(c.b, *v)
	}
}

// unquote reads a JSON string; most have no escapes.
func unquote(raw []byte, v *string) error {
	if n := len(raw); n >= 2 && raw[0] == '"' {
		plain := true
		for _, b := range raw[1 : n-1] {
			plain = plain && b != '\\' && b >= ' '
		}
		if plain {
			*v = string(raw[1 : n-1])
			return nil
		}
	}
	return json.Unmarshal(raw, v)
}

// value is a column of JSON, kept byte for byte; nil is null.
func (c *columns) value(name string, v *json.RawMessage) {
	switch {
	case c.compact != nil && c.decode:
		s, err := c.compact.bytes()
		if *v = nil; s != "" {
			*v = json.RawMessage(s)
		}
		c.failed(name, err)
	case c.compact != nil:
		c.compact.putText(string(*v))
	case c.decode:
		*v = c.take(name)
	case len(*v) == 0:
		c.skip(name)
	default:
		if !json.Valid(*v) {
			c.failed(name, errors.New("not JSON"))
		}
		c.name(name)
		c.b = append(c.b, *v...)
	}
}

// number is a column of a whole number. 0 is null if null is set.
func (c *columns) number(name string, v *int64, null bool) {
	if c.compact != nil {
		c.compactNumber(name, v)
		return
	}
	if null && !c.decode && *v == 0 {
		c.skip(name)
		return
	}
	if !c.decode {
		c.name(name)
		c.b = strconv.AppendInt(c.b, *v, 10)
		return
	}
	*v = 0
	if raw := c.take(name); raw != nil {
		n, err := strconv.ParseInt(string(raw), 10, 64)
		*v = n
		c.failed(name, err)
	}
}

func (c *columns) compactNumber(name string, v *int64) {
	if !c.decode {
		c.compact.putNumber(*v)
		return
	}
	n, err := c.compact.varint()
	*v = n
	c.failed(name, err)
}

// flag is a column that is true or null.
func (c *columns) flag(name string, v *bool) {
	switch {
	case c.compact != nil:
		var n int64
		if *v && !c.decode {
			n = 1
		}
		c.compactNumber(name, &n)
		*v = n != 0
	case c.decode:
		*v = string(c.take(name)) == "true"
	case *v:
		c.name(name)
		c.b = append(c.b, "true"...)
	default:
		c.skip(name)
	}
}

// at is a column of a time; the zero time is null.
func (c *columns) at(name string, v *time.Time) {
	switch {
	case c.compact != nil && c.decode:
		at, err := c.compact.time()
		*v = at
		c.failed(name, err)
	case c.compact != nil:
		c.compact.putTime(*v)
	case !c.decode && v.IsZero():
		c.skip(name)
	case !c.decode:
		c.name(name)
		c.b = append(append(append(c.b, '"'), event.FormatTime(*v)...), '"')
	default:
		*v = time.Time{}
		raw := c.take(name)
		if raw == nil {
			return
		}
		var s string
		if err := unquote(raw, &s); err != nil {
			c.failed(name, err)
			return
		}
		t, err := time.Parse(time.RFC3339, s)
		*v = t.UTC()
		c.failed(name, err)
	}
}

// appendRow appends the row as a JSON object.
func appendRow(b []byte, r Row, nulls bool) ([]byte, error) {
	c := columns{b: append(b, '{'), nulls: nulls}
	walk(r, &c)
	return append(c.b, '}'), c.err
}

// ParseJSON fills the row from a JSON object. Columns that it does not have become
// empty, and others are passed over. The row keeps parts of text.
func ParseJSON(r Row, text []byte) error {
	// Rows are stored with their columns in order; a map of them costs five times as
	// much, and is for what comes from elsewhere.
	if len(text) > 1 && text[0] == '{' {
		c := columns{decode: true, rest: text[1:]}
		if walk(r, &c); c.err == nil && string(c.rest) == "}" {
			return nil
		}
	}
	in, err := members(text)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, r.Entity(), err)
	}
	c := columns{decode: true, in: in}
	walk(r, &c)
	return c.err
}

// next returns the value of the column if it is the next member of the text, else
// nil. The value aliases the text.
func (c *columns) next(name string) json.RawMessage {
	b := c.rest
	if len(b) < len(name)+4 || b[0] != '"' || string(b[1:1+len(name)]) != name || b[1+len(name)] != '"' || b[2+len(name)] != ':' {
		return nil
	}
	b = b[len(name)+3:]
	n := valueEnd(b)
	if n <= 0 || n >= len(b) || b[n] != ',' && b[n] != '}' {
		return nil
	}
	if c.rest = b[n:]; b[n] == ',' {
		c.rest = b[n+1:]
	}
	v := json.RawMessage(b[:n:n])
	if string(v) == "null" {
		return nil
	}
	return v
}

// valueEnd returns where the JSON value that b begins with ends, which is known to
// be sound; -1 where no end is seen.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if i >= len(b) {
				return -1
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}

// members returns the members of a JSON object, their values as they stand there.
func members(text []byte) (map[string]json.RawMessage, error) {
	in := map[string]json.RawMessage{}
	err := json.Unmarshal(text, &in)
	return in, err
}

// SetMember returns the JSON object with the member set, and the others as they
// were, in the order of their names. A nil object and null are an empty one; what is not
// an object is kept under "value".
func SetMember(object json.RawMessage, name string, value any) (json.RawMessage, error) {
	in, err := members(object)
	switch {
	case len(object) == 0, in == nil: // null has no map
		in = map[string]json.RawMessage{}
	case err != nil:
		in = map[string]json.RawMessage{"value": object}
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	in[name] = raw
	return json.Marshal(in)
}
