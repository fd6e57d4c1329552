package outbox

import (
	"encoding/json"
	"errors"
	"testing"

	"thread/engine"
	"thread/event"
)

// O-11: a direct message from each kind of party to each is a message in the thread,
// with one conversation for both sides.
func TestDirectMessages(t *testing.T) {
	th := newThread(t)
	send := func(from, to, format, content string) (e event.Event, err error) {
		a, err := ParseParty(from)
		if err != nil {
			return e, err
		}
		b, err := ParseParty(to)
		if err != nil {
			return e, err
		}
		err = th.Update(ctx, func(tx *engine.Tx) (err error) {
			e, err = SendDirect(tx, DirectMessage{From: a, To: b, Format: format, Content: content})
			return err
		})
		return e, err
	}
	for _, c := range [][3]string{
		{"user:1", "user:2", "user:1|user:2"}, {"user:2", "user:1", "user:1|user:2"}, {"agent:a", "agent:b", "agent:a|agent:b"},
		{"agent:a", "user:1", "agent:a|user:1"}, {"user:1", "agent:a", "agent:a|user:1"},
	} {
		for _, format := range Formats {
			e, err := send(c[0], c[1], format, `{"n":9007199254740993}`)
			noError(t, err)
			var m DirectMessage
			noError(t, json.Unmarshal([]byte(e.Content), &m))
			if e.Type != DirectType || *e.Subtype != format || e.Source != c[0] || m.Conversation != c[2] || m.Content != `{"n":9007199254740993}` ||
				m.From.String() != c[0] || m.To.String() != c[1] {
				t.Errorf("got %+v, %+v", e, m)
			}
		}
	}
	for _, c := range [][4]string{{"1", "user:2", "text", "x"}, {"user:1", "bot:2", "text", "x"}, {"user:1", "user:", "text", "x"}, {"user:1", "user:1", "text", "x"},
		{"user:1", "user:2", "html", "x"}, {"user:1", "user:2", "rich-json", "{"}, {"user:1", "user:2", "text", "\xff"}} {
		if _, err := send(c[0], c[1], c[2], c[3]); !errors.Is(err, event.ErrInvalid) {
			t.Errorf("%q: got %v", c, err)
		}
	}
}
