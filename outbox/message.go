package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"thread/event"
)

// The event types (O-03).
const (
	CommentCreated = "comment.created"
	CommentReplied = "comment.replied"
	MentionCreated = "mention.created"
	LikeCreated    = "like.created"
	ThreadCreated  = "thread.created"
	ActionFeedback = "agent.action.feedback"
)

// EventTypes are all event types.
var EventTypes = []string{CommentCreated, CommentReplied, MentionCreated, LikeCreated, ThreadCreated, ActionFeedback}

// What TargetUserType, Language and ActionHint may be, except "".
const (
	Human = "human"
	Agent = "agent"

	NotifyOnly    = "notify_only"
	ConsiderReply = "consider_reply"
	MustReply     = "must_reply"
)

const (
	// MaxMessageBytes bounds the JSON form of a message.
	MaxMessageBytes = 1 << 20
	// maxNameBytes bounds event_id, trace_id and dedupe_key.
	maxNameBytes = 512
	// MaxPreview is to how many characters a content preview is cut.
	MaxPreview = 500
)

// Message is what is handed on. Its JSON form has these members in this order, and
// then Extra.
type Message struct {
	EventID    string // unique for ever; "" for a new one
	EventType  string // one of EventTypes, or of the Rules of the thread
	OccurredAt string // ISO 8601, with a date and a time; "" for now
	TraceID    string // "" for a new one

	ActorUserID    ID
	TargetUserID   ID     // null: no process in particular, a broadcast
	TargetUserType string // Human, Agent or ""

	ThreadID        ID // needed except for a feedback
	CommentID       ID // needed for comment events
	ParentCommentID ID

	Depth          int    // 1, 2, 3, or 0 for none; of comment events only
	ContentPreview string // cut to MaxPreview characters
	Language       string // "zh", "en" or ""
	ActionHint     string // NotifyOnly, ConsiderReply, MustReply or ""
	DedupeKey      string // "" for the one of DefaultDedupeKey

	// Extra are further members, which are kept as they are.
	Extra []Member

	// AvailableAt is when the message may be handed on at the earliest. It is not
	// part of the payload, but ParseMessage takes a member available_at for it.
	AvailableAt time.Time
}

// Member is a member of a JSON object.
type Member struct {
	Name  string
	Value json.RawMessage
}

// isComment reports whether Depth and CommentID mean something.
func (m *Message) isComment() bool {
	return m.EventType == CommentCreated || m.EventType == CommentReplied
}

// ParseMessage reads a message of the forum from a JSON object and checks it. Every error wraps
// [event.ErrInvalid].
func ParseMessage(b []byte) (m Message, err error) {
	if m, err = ReadMessage(b); err != nil {
		return m, err
	}
	return m, m.Validate()
}

// ReadMessage is ParseMessage that leaves the check to [Insert], which knows the rules of the
// thread.
func ReadMessage(b []byte) (m Message, err error) {
	if len(b) > MaxMessageBytes {
		return m, invalidf("the message has %d bytes, the limit is %d", len(b), MaxMessageBytes)
	}
	if !utf8.Valid(b) {
		return m, fmt.Errorf("%w: the message is not valid UTF-8", event.ErrNotText)
	}
	members, err := parseObject(b)
	if err != nil {
		return m, err
	}
	texts := map[string]*string{
		"event_id": &m.EventID, "event_type": &m.EventType, "occurred_at": &m.OccurredAt, "trace_id": &m.TraceID,
		"target_user_type": &m.TargetUserType, "content_preview": &m.ContentPreview, "language": &m.Language,
		"action_hint": &m.ActionHint, "dedupe_key": &m.DedupeKey,
	}
	ids := m.ids()
	var depth json.RawMessage
	for _, member := range members {
		switch name, value := member.Name, member.Value; {
		case texts[name] != nil:
			if bytes.Equal(value, []byte("null")) {
				continue
			}
			if value[0] != '"' || json.Unmarshal(value, texts[name]) != nil {
				return m, invalidf("%s is not a text", name)
			}
		case ids[name] != nil:
			if err := ids[name].UnmarshalJSON(value); err != nil {
				return m, invalidf("%s %.40s is not an integer, a text of at most %d bytes or null", name, value, maxIDBytes)
			}
		case name == "depth":
			depth = value
		case name == "available_at":
			if m.AvailableAt, err = parseAvailableAt(value); err != nil {
				return m, err
			}
		default:
			m.Extra = append(m.Extra, member)
		}
	}
	switch {
	case depth == nil || string(depth) == "null":
	case m.isComment():
		if m.Depth, err = strconv.Atoi(string(depth)); err != nil || m.Depth == 0 {
			return m, invalidf("depth %.40s is not 1, 2 or 3", depth)
		}
	default:
		m.Extra = append(m.Extra, Member{"depth", depth}) // it means nothing here
	}
	return m, nil
}

func parseAvailableAt(value json.RawMessage) (at time.Time, err error) {
	if string(value) == "null" {
		return at, nil
	}
	var s string
	if json.Unmarshal(value, &s) == nil {
		at, err = time.Parse(time.RFC3339, s)
	}
	if s == "" || err != nil {
		return at, invalidf("available_at %.60s is not a time such as 2026-02-26T12:30:15Z", value)
	}
	return at, nil
}

// parseObject reads the members of a JSON object in their order, values as they are
// written but without spaces.
func parseObject(b []byte) (members []Member, err error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, b); err != nil {
		return nil, invalidf("the message is not JSON: %v", err)
	}
	dec := json.NewDecoder(&compact)
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, invalidf("the message is not a JSON object")
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, invalidf("the message is not JSON: %v", err)
		}
		name := t.(string)
		if seen[name] {
			return nil, invalidf("the member %q is there twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, invalidf("the message is not JSON: %v", err)
		}
		members = append(members, Member{name, value})
	}
	return members, nil
}

func (m *Message) ids() map[string]*ID {
	return map[string]*ID{"actor_user_id": &m.ActorUserID, "target_user_id": &m.TargetUserID,
		"thread_id": &m.ThreadID, "comment_id": &m.CommentID, "parent_comment_id": &m.ParentCommentID}
}

// isForum reports whether m has a type of the forum.
func (m *Message) isForum() bool { return slices.Contains(EventTypes, m.EventType) }

// Validate reports the first thing that keeps m from being inserted (O-03), where the thread has
// no rules. The error wraps [event.ErrInvalid].
func (m *Message) Validate() error {
	if !m.isForum() {
		return invalidf("event_type %.40q is not one of %s", m.EventType, list(EventTypes))
	}
	if err := m.validate(); err != nil {
		return err
	}
	switch {
	case m.ThreadID.IsNull() && m.EventType != ActionFeedback:
		return invalidf("thread_id is missing")
	case m.CommentID.IsNull() && m.isComment():
		return invalidf("comment_id is missing, which %s needs", m.EventType)
	}
	return nil
}

// validate is Validate for messages of any type.
func (m *Message) validate() error {
	languages := []string{"", "zh", "en"}
	if !m.isForum() {
		languages = []string{m.Language}
	}
	for _, of := range []struct {
		name, value string
		allowed     []string
	}{
		{"target_user_type", m.TargetUserType, []string{"", Human, Agent}},
		{"language", m.Language, languages},
		{"action_hint", m.ActionHint, []string{"", NotifyOnly, ConsiderReply, MustReply}},
	} {
		if !slices.Contains(of.allowed, of.value) {
			return invalidf("%s %.40q is not one of %s", of.name, of.value, list(of.allowed))
		}
	}
	for name, id := range m.ids() {
		if err := id.check(name); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"event_id": m.EventID, "trace_id": m.TraceID, "dedupe_key": m.DedupeKey} {
		most := maxNameBytes
		if m.EventType == ActionFeedback {
			most *= 2 // its event_id has another one's in it
		}
		if len(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return invalidf("%s is longer than %d bytes, has control characters or is not valid UTF-8", name, most)
		}
	}
	switch {
	case m.OccurredAt != "" && !isISO8601(m.OccurredAt):
		return invalidf("occurred_at %.40q is not a time in ISO 8601, such as 2026-02-26T12:30:15Z", m.OccurredAt)
	case m.isComment() && (m.Depth < 0 || m.Depth > 3):
		return invalidf("depth %d is not 1, 2 or 3", m.Depth)
	case m.TargetUserType != "" && m.TargetUserID.IsNull():
		return invalidf("target_user_type is %s, but target_user_id is missing", m.TargetUserType)
	}
	return nil
}

func list(allowed []string) string {
	var b []byte
	for _, s := range allowed {
		if s != "" {
			b = append(append(b, ", "...), s...)
		}
	}
	return string(b[2:])
}

// isISO8601 reports whether s is a date and a time of ISO 8601, in the extended or
// the basic form, with or without an offset and parts of a second.
func isISO8601(s string) bool {
	for _, day := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "20060102T150405", "2006-01-02 15:04:05"} {
		for _, offset := range []string{"Z07:00", "Z0700", "Z07", ""} {
			if _, err := time.Parse(day+offset, s); err == nil {
				return true
			}
		}
	}
	return false
}

// DefaultDedupeKey is the dedupe key of a message that has none: equal for messages
// that tell the same user of the same thing.
func (m *Message) DefaultDedupeKey() string {
	what := m.CommentID.String()
	if what == "" {
		what = "thread:" + m.ThreadID.String()
	}
	target := m.TargetUserID.String()
	switch m.EventType {
	case CommentReplied:
		return "reply:" + what + ":" + target
	case CommentCreated:
		return "comment:" + what + ":" + target
	case MentionCreated:
		return "mention:" + what + ":" + target
	case LikeCreated:
		return "like:" + what + ":" + m.ActorUserID.String() + ":" + target
	case ThreadCreated:
		return "thread:" + m.ThreadID.String()
	}
	return "feedback:" + m.EventID
}

// cutPreview returns the first MaxPreview characters of s.
func cutPreview(s string) string {
	n := 0
	for i := range s {
		if n++; n > MaxPreview {
			return s[:i]
		}
	}
	return s
}

// MarshalJSON returns the message as one compact object, numbers as they were given. What a
// message with a type that the forum does not have does not have is left out, and not null.
func (m Message) MarshalJSON() ([]byte, error) { return m.json(), nil }

func (m *Message) json() []byte {
	var b []byte
	nulls := m.isForum()
	text := func(name, s string) {
		if s == "" && !nulls {
			return
		}
		b = append(append(event.AppendString(b, name), ':'), "null,"...)
		if s != "" {
			b = append(event.AppendString(b[:len(b)-len("null,")], s), ',')
		}
	}
	id := func(name string, id ID) {
		if id.IsNull() && !nulls {
			return
		}
		j, _ := id.MarshalJSON() // it never fails
		b = append(append(append(event.AppendString(b, name), ':'), j...), ',')
	}
	b = append(b, '{')
	text("event_id", m.EventID)
	text("event_type", m.EventType)
	text("occurred_at", m.OccurredAt)
	text("trace_id", m.TraceID)
	id("actor_user_id", m.ActorUserID)
	id("target_user_id", m.TargetUserID)
	text("target_user_type", m.TargetUserType)
	id("thread_id", m.ThreadID)
	id("comment_id", m.CommentID)
	id("parent_comment_id", m.ParentCommentID)
	if m.isComment() {
		depth := ID{}
		if m.Depth != 0 {
			depth = NumberID(int64(m.Depth))
		}
		id("depth", depth)
	}
	text("content_preview", m.ContentPreview)
	text("language", m.Language)
	text("action_hint", m.ActionHint)
	text("dedupe_key", m.DedupeKey)
	for _, e := range m.Extra {
		b = append(append(append(event.AppendString(b, e.Name), ':'), e.Value...), ',')
	}
	b[len(b)-1] = '}'
	return b
}
