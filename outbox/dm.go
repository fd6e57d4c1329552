package outbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"thread/engine"
	"thread/event"
)

// DirectMessage is a message from one user to another, people or agents (O-11). It is
// an event of type [DirectType] in the thread of who receives it, not an outbox
// record: the recipient's own subscriptions see it.
type DirectMessage struct {
	Conversation string `json:"conversation_id"` // set by SendDirect: the sorted pair
	From         Party  `json:"from"`
	To           Party  `json:"to"`
	Format       string `json:"content_format"` // one of Formats
	Content      string `json:"content"`        // for FormatJSON a JSON text
}

// DirectType is the event type of direct messages, whose subtype is the format.
const DirectType = "dm"

// Formats are what the content of a direct message may be.
var Formats = []string{"text", "markdown", FormatJSON}

// FormatJSON is content that is a JSON text.
const FormatJSON = "rich-json"

// Party is one side of a conversation, such as user:12 or agent:coder. A human is a
// "user" here, as in U2A.
type Party struct {
	Kind string // "user" or "agent"
	ID   string
}

// ParseParty reads "user:ID" or "agent:ID".
func ParseParty(s string) (Party, error) {
	kind, id, ok := strings.Cut(s, ":")
	if !ok || kind != "user" && kind != "agent" {
		return Party{}, invalidf("%.40q is not user:ID or agent:ID", s)
	}
	if id == "" {
		return Party{}, invalidf("%.40q has no id", s)
	}
	return Party{kind, id}, TextID(id).check("the id of " + kind)
}

func (p Party) String() string { return p.Kind + ":" + p.ID }

// MarshalJSON returns the party as the text that [ParseParty] reads.
func (p Party) MarshalJSON() ([]byte, error) { return event.AppendString(nil, p.String()), nil }

// UnmarshalJSON reads what [Party.MarshalJSON] returns.
func (p *Party) UnmarshalJSON(b []byte) (err error) {
	var s string
	if err = json.Unmarshal(b, &s); err == nil {
		*p, err = ParseParty(s)
	}
	return err
}

// Conversation returns the id of the conversation of two parties, the same from both
// sides.
func Conversation(a, b Party) string {
	pair := []string{a.String(), b.String()}
	slices.Sort(pair)
	return strings.Join(pair, "|")
}

// SendDirect stores m in the transaction, which is on the recipient's thread. The
// error wraps [event.ErrInvalid].
func SendDirect(tx *engine.Tx, m DirectMessage) (event.Event, error) {
	for _, p := range []Party{m.From, m.To} {
		if _, err := ParseParty(p.String()); err != nil {
			return event.Event{}, err
		}
	}
	switch {
	case !slices.Contains(Formats, m.Format):
		return event.Event{}, invalidf("content format %.40q is not one of %s", m.Format, strings.Join(Formats, ", "))
	case !utf8.ValidString(m.Content):
		return event.Event{}, fmt.Errorf("%w: the content", event.ErrNotText)
	case m.Format == FormatJSON && !json.Valid([]byte(m.Content)):
		return event.Event{}, invalidf("the content is not JSON")
	case m.From == m.To:
		return event.Event{}, invalidf("%s is both sides of the conversation", m.From)
	}
	m.Conversation = Conversation(m.From, m.To)
	b := event.AppendString([]byte(`{"conversation_id":`), m.Conversation)
	b = event.AppendString(append(b, `,"from":`...), m.From.String())
	b = event.AppendString(append(b, `,"to":`...), m.To.String())
	b = event.AppendString(append(b, `,"content_format":`...), m.Format)
	b = event.AppendString(append(b, `,"content":`...), m.Content)
	return tx.Push(event.Draft{Source: m.From.String(), Type: DirectType, Subtype: &m.Format, Content: string(append(b, '}'))})
}
