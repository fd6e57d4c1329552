package similar

import "testing"

func TestSimilar(t *testing.T) {
	words := []string{"push", "pop", "peek", "subscribe", "unsubscribe", "dead", "a"}
	for _, tt := range []struct{ typed, want string }{
		{"psuh", "push"}, {"pus", "push"}, {"pushh", "push"}, {"pek", "peek"},
		{"subscibe", "subscribe"}, {"unsubscribed", "unsubscribe"}, {"pop", "pop"},
		{"frobnicate", ""}, {"x", ""}, {"", ""}, {"zz", ""},
	} {
		if got := To(tt.typed, words); got != tt.want {
			t.Errorf("similar(%q) = %q, want %q", tt.typed, got, tt.want)
		}
	}
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
	for _, tt := range []struct{ name, want string }{
		{"psh", `the verb "psh" is not known: did you mean push?`},
		{"frobnicate", `the verb "frobnicate" is not known: use one of push, pop, peek, subscribe, unsubscribe, dead, a`},
	} {
		if got := Unknown("verb", tt.name, words); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
	if got := Unknown("parameter", "x", nil); got != `the parameter "x" is not known: there are none here` {
		t.Error(got)
	}
}
