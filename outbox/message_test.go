package outbox

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"thread/event"
)

// example is the message of the document that the outbox follows.
const example = `{
  "event_id": "evt_20260226_9f3a1c",
  "event_type": "comment.replied",
  "occurred_at": "2026-02-26T12:30:15Z",
  "trace_id": "trc_7c1d2e",
  "actor_user_id": 12,
  "target_user_id": 5,
  "target_user_type": "agent",
  "thread_id": 101,
  "comment_id": 8801,
  "parent_comment_id": 8799,
  "depth": 2,
  "content_preview": "I agree with your point, but the causal relationship here still needs experimental verification...",
  "language": "zh",
  "action_hint": "consider_reply",
  "dedupe_key": "reply:8801:5"
}`

// O-03: each rule of a message refuses what breaks it, and the error is one of an
// invalid argument.
func TestValidation(t *testing.T) {
	with := func(change string) string {
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(example), &m); err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(change, "=")
		if m[name] = json.RawMessage(value); value == "" {
			delete(m, name)
		}
		b, _ := json.Marshal(m)
		return string(b)
	}
	for change, ok := range map[string]bool{
		"x=1": true, "event_type=\"reply\"": false, "event_type=": false, "event_type=3": false,
		"occurred_at=\"yesterday\"": false, "occurred_at=\"2026-02-26\"": false, "occurred_at=1772109015": false, "occurred_at=": true,
		"occurred_at=\"2026-02-26T12:30:15.123456+08:00\"": true, "occurred_at=\"20260226T123015Z\"": true,
		"occurred_at=\"2026-02-30T12:30:15Z\"": false,
		"target_user_type=\"bot\"":             false, "target_user_type=null": true, "target_user_id=null": false,
		"depth=0": false, "depth=4": false, "depth=\"2\"": false, "depth=1.5": false, "depth=3": true, "depth=null": true,
		"language=\"fr\"": false, "language=\"en\"": true, "language=null": true,
		"action_hint=\"maybe\"": false, "action_hint=\"must_reply\"": true,
		"thread_id=": false, "thread_id=null": false, "thread_id=\"t-1\"": true, "thread_id=1.5": false, "thread_id=1e3": false, "thread_id=true": false,
		"thread_id={}": false, "comment_id=": false, "actor_user_id=\"a\\u0000b\"": false, "parent_comment_id=": true,
		"event_id=\"\"": true, "event_id=7": false, "dedupe_key=": true, "content_preview=3": false,
		"available_at=\"soon\"": false, "available_at=\"2030-01-01T00:00:00Z\"": true, "available_at=null": true,
		"event_id=\"" + strings.Repeat("x", 600) + "\"": false,
	} {
		_, err := ParseMessage([]byte(with(change)))
		if (err == nil) != ok || err != nil && !errors.Is(err, event.ErrInvalid) {
			t.Errorf("%.60s: got %v", change, err)
		}
	}
	for _, text := range []string{"", "[]", "3", `"x"`, "{", `{"event_type":"thread.created","thread_id":1}x`,
		`{"event_type":"thread.created","thread_id":1,"thread_id":2}`} {
		if _, err := ParseMessage([]byte(text)); !errors.Is(err, event.ErrInvalid) {
			t.Errorf("%s: got %v", text, err)
		}
	}
	// thread.created only needs its thread, and depth means nothing in it.
	m, err := ParseMessage([]byte(`{"event_type":"thread.created","thread_id":101,"depth":17}`))
	if err != nil || !strings.Contains(string(m.json()), `"depth":17`) {
		t.Errorf("got %s, %v", m.json(), err)
	}
}

// O-03: the lists are the lists of the document, and each value in them is taken.
func TestEnumerations(t *testing.T) {
	for member, values := range map[string][]string{
		"event_type":       {"comment.created", "comment.replied", "mention.created", "like.created", "thread.created", "agent.action.feedback"},
		"target_user_type": {"human", "agent"}, "language": {"zh", "en"}, "action_hint": {"notify_only", "consider_reply", "must_reply"},
	} {
		for _, value := range values {
			var m map[string]json.RawMessage
			noError(t, json.Unmarshal([]byte(example), &m))
			m[member] = json.RawMessage(`"` + value + `"`)
			text, err := json.Marshal(m)
			noError(t, err)
			got, err := ParseMessage(text)
			if err != nil || !strings.Contains(string(got.json()), `"`+member+`":"`+value+`"`) {
				t.Errorf("%s %q: %s, %v", member, value, got.json(), err)
			}
			for _, other := range []string{value + " ", strings.ToUpper(value), ""} {
				if m[member] = json.RawMessage(`"` + other + `"`); member != "event_type" && other == "" {
					continue // as null
				}
				text, _ = json.Marshal(m)
				if _, err := ParseMessage(text); !errors.Is(err, event.ErrInvalid) {
					t.Errorf("%s %q: got %v", member, other, err)
				}
			}
		}
	}
	if len(EventTypes) != 6 {
		t.Errorf("%d event types", len(EventTypes))
	}
}

// O-03: a preview is cut to 500 characters, not bytes.
func TestPreviewIsCut(t *testing.T) {
	th := newThread(t)
	for _, c := range []struct{ text, want string }{
		{strings.Repeat("因", 501), strings.Repeat("因", 500)}, {strings.Repeat("果", 500), strings.Repeat("果", 500)}, {"🙂", "🙂"},
	} {
		m := like(int64(len(c.text)))
		m.ContentPreview = c.text
		var got Message
		got, err := ParseMessage(get(t, th, insert(t, th, m).ID).Payload)
		if err != nil || got.ContentPreview != c.want {
			t.Errorf("%d characters were kept of %d, %v", utf8.RuneCountInString(got.ContentPreview), utf8.RuneCountInString(c.text), err)
		}
	}
}

// O-16: the example is kept with equal values, its members in their order.
func TestExampleIsKept(t *testing.T) {
	m, err := ParseMessage([]byte(example))
	noError(t, err)
	var want, got strings.Builder
	for _, into := range []struct {
		b    *strings.Builder
		text string
	}{{&want, example}, {&got, string(m.json())}} {
		members, err := parseObject([]byte(into.text))
		noError(t, err)
		for _, m := range members {
			into.b.WriteString(m.Name + "=" + string(m.Value) + "\n")
		}
	}
	if got.String() != want.String() {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want.String())
	}
}

// O-16, O-03: numbers of any size and unknown members survive, whatever they are.
func TestMessageRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		id := rapid.OneOf(
			rapid.Map(rapid.Int64(), NumberID),
			rapid.Map(rapid.StringMatching(`[1-9][0-9]{0,40}`), func(s string) ID { return ID{s} }),
			rapid.Map(rapid.StringOf(rapid.RuneFrom([]rune(`aü"\<因🙂 `))), TextID))
		m := Message{EventID: rapid.StringMatching(`[a-z]{1,8}`).Draw(rt, "event_id"), EventType: rapid.SampledFrom(EventTypes).Draw(rt, "type"),
			ActorUserID: id.Draw(rt, "actor"), TargetUserID: id.Draw(rt, "target"), ThreadID: NumberID(1 << 62), CommentID: NumberID(9007199254740993),
			ContentPreview: rapid.String().Draw(rt, "preview")}
		if m.isComment() {
			m.Depth = rapid.IntRange(0, 3).Draw(rt, "depth")
		}
		if rapid.Bool().Draw(rt, "extra") {
			m.Extra = []Member{{"x", json.RawMessage(`{"n":123456789012345678901234567890.50,"s":"\u003c"}`)}}
		}
		back, err := ParseMessage(m.json())
		if err != nil {
			rt.Fatal(err)
		}
		if got, want := string(back.json()), string(m.json()); got != want {
			rt.Fatalf("got %s, want %s", got, want)
		}
	})
}
