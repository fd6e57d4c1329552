package cli

import "testing"

// TestRoff: what a formatter takes for itself is printed as it stands.
func TestRoff(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain", "plain"},
		{`a\b`, `a\eb`},
		{"--flag", `\-\-flag`},
		{".dot\n'quote", "\\&.dot\n\\(aqquote"},
	} {
		if got := roff(tt.in); got != tt.want {
			t.Errorf("roff(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
