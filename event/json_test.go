package event

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// AppendString writes what encoding/json reads as the same text, and every byte
// that needs no escape as it is.
func TestAppendString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(
			rapid.String(),
			rapid.StringOfN(rapid.RuneFrom([]rune("ab<>&/\"\\\x00\x07\b\t\n\f\r\x1f\x20\x7f\u0080é\u2028\u2029\U0001F600\uFFFD")), 0, 40, -1),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) }),
		).Draw(t, "s")
		got := string(AppendString(nil, s))
		var back string
		if err := json.Unmarshal([]byte(got), &back); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		want := s
		if !utf8.ValidString(s) {
			want = string([]rune(s)) // a U+FFFD for each bad byte
		}
		if back != want {
			t.Fatalf("%q became %q", s, back)
		}
		for _, keep := range []string{"<", ">", "&", "/", "\x7f", "\u2028", "é"} {
			if strings.Count(got, keep) != strings.Count(want, keep) {
				t.Fatalf("%q became %s", s, got)
			}
		}
	})
}
