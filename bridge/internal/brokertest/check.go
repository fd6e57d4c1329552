package brokertest

import (
	"strings"
	"testing"

	"thread/bridge/adapter"
)

// Checks holds what an adapter says of connections against what it must say: of
// "key=value & key=value", with "require" for require_tls, behind what stands in each.
// What is wanted is a part of the first fault, its key before it, or "" for none.
func Checks(t *testing.T, kind, each string, wants map[string]string) {
	t.Helper()
	spec, err := adapter.Find(kind)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range wants {
		s := &adapter.Settings{Keys: spec.Keys, Connection: map[string]string{}}
		for word := range strings.SplitSeq(each+" & "+text, " & ") {
			name, v, ok := strings.Cut(word, "=")
			if ok {
				s.Connection[name] = v
			} else if name == "require" {
				s.RequireTLS = true
			}
		}
		said := ""
		for _, f := range spec.Check(s) {
			said = f.Key + ": " + f.What
			break
		}
		if (want == "") != (said == "") || !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", text, said, want)
		}
	}
}
