package terminal

import "testing"

func TestPrintable(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{`it's "plain" \ text`, `it's "plain" \ text`},
		{"grün 🧵", "grün 🧵"},
		{"a\nb\r\tc", `a\nb\r\tc`},
		{"\x00\x1b[31m\x7f", `\x00\x1b[31m\x7f`},
		{"\u009b31m", `\u009b31m`},
		{"left\u202eright", `left\u202eright`},
		{"line\u2028end", `line\u2028end`},
		{"\U000e0001", `\U000e0001`},
		{"bad\xff\xc3", `bad\xff\xc3`},
		{"\uFFFD is itself", "\uFFFD is itself"},
	} {
		if got := Printable(tt.in); got != tt.want {
			t.Errorf("printable(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
