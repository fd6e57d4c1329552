package outbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"thread/event"
)

// maxIDBytes bounds the text of an ID.
const maxIDBytes = 256

// ID names a user, a thread or a comment of the application: an integer of any
// size, or a text of 1 to 256 bytes without control characters. It keeps the form
// that it was given; 12 and "12" are the same user. The zero ID is null.
type ID struct{ json string }

// NumberID returns the ID of an integer.
func NumberID(n int64) ID { return ID{strconv.FormatInt(n, 10)} }

// TextID returns the ID of a text; it is null for "".
func TextID(s string) ID {
	if s == "" {
		return ID{}
	}
	return ID{string(event.AppendString(nil, s))}
}

// IsNull reports whether there is no ID.
func (id ID) IsNull() bool { return id.json == "" }

// String returns the text or the digits, "" for null.
func (id ID) String() string {
	if !strings.HasPrefix(id.json, `"`) {
		return id.json
	}
	var s string
	_ = json.Unmarshal([]byte(id.json), &s) // it was checked
	return s
}

// MarshalJSON returns the ID in the form that it was given in.
func (id ID) MarshalJSON() ([]byte, error) {
	if id.IsNull() {
		return []byte("null"), nil
	}
	return []byte(id.json), nil
}

// UnmarshalJSON takes an integer, a text or null.
func (id *ID) UnmarshalJSON(b []byte) error {
	s := string(b)
	switch {
	case s == "null":
		*id = ID{}
		return nil
	case strings.HasPrefix(s, `"`):
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		*id = TextID(text)
		return id.check("id")
	}
	*id = ID{s}
	return id.check("id")
}

func (id ID) check(name string) error {
	if id.IsNull() {
		return nil
	}
	if !strings.HasPrefix(id.json, `"`) {
		digits := strings.TrimPrefix(id.json, "-")
		if digits == "" || len(digits) > maxIDBytes || strings.Trim(digits, "0123456789") != "" {
			return invalidf("%s %.40s is not an integer, a text or null", name, id.json)
		}
		return nil
	}
	text := id.String()
	if len(text) > maxIDBytes || strings.ContainsFunc(text, unicode.IsControl) {
		return invalidf("%s is longer than %d bytes or has control characters", name, maxIDBytes)
	}
	return nil
}

// invalidf returns an error that wraps event.ErrInvalid.
func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", event.ErrInvalid, fmt.Errorf(format, args...))
}
