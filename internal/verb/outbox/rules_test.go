package outbox

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/outbox"
)

func rulesOf(t *testing.T, example string) *outbox.Rules {
	t.Helper()
	b, err := os.ReadFile("../../../examples/outbox/" + example)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := parseRules(b)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// TestForumRules: O-03 to O-06: a thread with the rules of examples/outbox/forum.yaml takes the
// messages that a thread without rules takes, decides as that does, and has the same duplicates.
func TestForumRules(t *testing.T) {
	rules := rulesOf(t, "forum.yaml")
	var threads [2]*engine.Thread
	for i := range threads {
		th, err := engine.Init(filepath.Join(t.TempDir(), "t"))
		if err != nil {
			t.Fatal(err)
		}
		threads[i] = th
	}
	write := func(tx *engine.Tx) error { return outbox.WriteRules(tx, rules) }
	if err := threads[1].Update(context.Background(), write); err != nil {
		t.Fatal(err)
	}
	user := rapid.SampledFrom([]outbox.ID{{}, outbox.NumberID(5), outbox.TextID("5"), outbox.TextID("ann")})
	message := rapid.Custom(func(t *rapid.T) outbox.Message {
		comment := rapid.IntRange(0, 3).Draw(t, "comment")
		m := outbox.Message{EventType: rapid.SampledFrom(append([]string{"reply"}, outbox.EventTypes...)).Draw(t, "type"),
			ActorUserID: user.Draw(t, "actor"), TargetUserID: user.Draw(t, "target"),
			TargetUserType: rapid.SampledFrom([]string{"", outbox.Human, outbox.Agent}).Draw(t, "target type"),
			Depth:          rapid.IntRange(-1, 4).Draw(t, "depth"),
			Language:       rapid.SampledFrom([]string{"", "zh", "fr"}).Draw(t, "language"),
			ActionHint:     rapid.SampledFrom([]string{"", outbox.NotifyOnly, outbox.MustReply, "maybe"}).Draw(t, "hint")}
		if comment > 0 {
			m.CommentID = outbox.NumberID(int64(comment))
		}
		if rapid.IntRange(0, 9).Draw(t, "thread") > 0 {
			m.ThreadID = outbox.NumberID(int64(100 + comment)) // the comment is of one thread
		}
		return m
	})
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(message, 1, 30).Draw(t, "messages")
		s := outbox.DefaultSettings()
		s.SelfAction, s.FeedbackNotifies = rapid.Bool().Draw(t, "self"), rapid.Bool().Draw(t, "feedback")
		var stored [2][]bool
		for i := range list {
			m := &list[i]
			is, want := rules.Check(m), m.Validate()
			if (is == nil) != (want == nil) {
				t.Fatalf("%+v: %v, want %v", *m, is, want)
			}
			if want != nil {
				continue
			}
			d, err := rules.Decide(m, s)
			if w := outbox.Decide(m, s); err != nil || d.Notify != w.Notify || d.Trigger != w.Trigger {
				t.Fatalf("%+v: %+v, %v, want %+v", *m, d, err, w)
			}
		}
		for i, th := range threads {
			_ = th.Update(context.Background(), func(tx *engine.Tx) error { // taken back
				for _, m := range list {
					if m.Validate() != nil {
						continue
					}
					in, err := outbox.Insert(tx, m)
					if err != nil {
						t.Fatal(err)
					}
					stored[i] = append(stored[i], in.Duplicate)
				}
				return os.ErrInvalid
			})
		}
		for i := range stored[0] {
			if stored[0][i] != stored[1][i] {
				t.Fatalf("duplicates %v with rules, %v without", stored[1], stored[0])
			}
		}
	})
}

// TestRefusedRules: what is wrong in a file is named in one line.
func TestRefusedRules(t *testing.T) {
	const ok = "types: {a: {notify: user, agent: x}}\nagents: {x: {handler: run}}\n"
	if _, err := parseRules([]byte(ok)); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                          "the rules have no types",
		"types: {}":                 "the rules have no types",
		"- a":                       "the file is not a mapping",
		"types: [a]":                "types is not a mapping",
		"types: {a: {}":             "[1:8] ",
		"a: 1\n---\nb: 2":           "more than one document",
		"typs: {a: {}}":             `the rules: the key "typs" is not known: did you mean types?`,
		"types: {a: {notfy: x}}":    `types.a: the key "notfy" is not known: did you mean notify?`,
		"types: {a: {notify: 3}}":   "types.a.notify is not a text",
		"types: {a: {required: x}}": "types.a.required is not a list of members",
		"types: {a: {agent: bo}}\nagents: {bob: {}}":            `types.a.agent: the agent "bo" is not known: did you mean bob?`,
		"types: {a: {notify_if: 'type ='}}":                     "types.a.notify_if: ",
		"types: {a: {}}\nagents: {x: {handle: y}}":              `agents.x: the key "handle" is not known: did you mean handler?`,
		"types: {a: {}}\nagents: {x: {timeout: -1s}}":           "agents.x.timeout is not a time",
		"types: {'a b': {}}":                                    `types: "a b" is not a name`,
		"types: {a: {}, a: {}}":                                 "[1:16] ",
		"types:\n  a:\n    key: " + strings.Repeat("x", 70_000): "the limit is 65536",
	} {
		_, err := parseRules([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}
