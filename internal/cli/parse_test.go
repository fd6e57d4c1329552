package cli_test

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"thread/internal/cli"
	"thread/internal/verb/core"
	"thread/internal/verb/history"
	"thread/internal/verb/outbox"
	"thread/internal/verb/serve"
	"thread/internal/verb/sqlite"
)

// TestParse: command lines are read, or refused, as kong's own Parse does, which looks
// at more than fill: enum, xor, and, and methods called Validate. A grammar with one of
// these fails here. What quick reads is the same.
func TestParse(t *testing.T) {
	var verbs []*cli.Verb
	for _, list := range [][]cli.Entry{core.Verbs, sqlite.Verbs, serve.Verbs, history.Verbs, outbox.Verbs} {
		for _, e := range list {
			if e.Verb != nil {
				verbs = append(verbs, e.Verb)
			}
		}
	}
	refused, accepted, quick := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SampledFrom(verbs).Draw(t, "verb")
		words := []string{"--", "-", "-5", "", "word", "two words", "--no-such", "--thread=a=b", "-z"}
		var required []string
		for _, f := range v.Model().Flags {
			if f.Name == "help" {
				continue
			}
			words = append(words, "--"+f.Name, "--"+f.Name+"=v", "--"+f.Name+"=")
			if f.Required {
				required = append(required, "--"+f.Name+"=v")
			}
			if f.Short != 0 {
				words = append(words, "-"+string(f.Short), "-"+string(f.Short)+"v")
			}
		}
		args := rapid.SliceOfN(rapid.SampledFrom(words), 0, 4).Draw(t, "args")
		if rapid.Bool().Draw(t, "all that is required") {
			args = append(required, args...)
			for range v.Model().Positional {
				args = append(args, "value")
			}
		}
		theirs, ours := v.Grammar(), v.Grammar()
		_, want := cli.NewParser(v, theirs).Parse(args)
		fast := v.Grammar()
		read := cli.Quick(fast, args)
		got := cli.Fill(cli.NewParser(v, ours), args)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("thread %s %q: %v, kong says %v", v.Name, args, got, want)
		}
		switch {
		case !read && !reflect.DeepEqual(fast, v.Grammar()):
			t.Fatalf("thread %s %q was left to kong as %+v", v.Name, args, fast)
		case want != nil && read:
			t.Fatalf("thread %s %q is read as %+v, kong says %v", v.Name, args, fast, want)
		case want != nil:
			refused++
			return
		case read:
			quick++
			if !reflect.DeepEqual(fast, theirs) {
				t.Fatalf("thread %s %q is read as %+v, for kong %+v", v.Name, args, fast, theirs)
			}
		}
		accepted++
		if !reflect.DeepEqual(ours, theirs) {
			t.Fatalf("thread %s %q is %+v, for kong %+v", v.Name, args, ours, theirs)
		}
	})
	if !testing.Short() && (refused == 0 || accepted == quick || quick == 0) { // a fifth of the rounds may miss one
		t.Errorf("%d command lines were refused and %d accepted, %d of them without kong", refused, accepted, quick)
	}
}
