package outbox

import "testing"

// O-04, O-05, O-14: each row of the table, and each rule next to it.
func TestDecisionTable(t *testing.T) {
	standard := DefaultSettings()
	noMention, self, loud := standard, standard, standard
	noMention.MentionTriggers, self.SelfAction, loud.FeedbackNotifies = false, true, true
	const (
		nothing = iota
		notify
		both
	)
	for _, c := range []struct {
		name     string
		typ      string
		target   string // its type; "" for a target without one, "-" for none
		change   func(m *Message)
		settings Settings
		want     int
	}{
		{"a reply to an agent", CommentReplied, Agent, nil, standard, both},
		{"a reply to a human", CommentReplied, Human, nil, standard, notify},
		{"a reply to somebody", CommentReplied, "", nil, standard, notify},
		{"a reply to nobody", CommentReplied, "-", nil, standard, nothing},
		{"an answer", CommentCreated, Human, func(m *Message) { m.Depth = 1 }, standard, notify},
		{"an answer without a depth", CommentCreated, Human, nil, standard, notify},
		{"an answer, the author is an agent", CommentCreated, Agent, func(m *Message) { m.Depth = 1 }, standard, notify},
		{"a deeper comment", CommentCreated, Human, func(m *Message) { m.Depth = 2 }, standard, nothing},
		{"a mention of an agent", MentionCreated, Agent, nil, standard, both},
		{"a mention of an agent, switched off", MentionCreated, Agent, nil, noMention, notify},
		{"a reply to an agent, mentions off", CommentReplied, Agent, nil, noMention, both},
		{"a mention of a human", MentionCreated, Human, nil, standard, notify},
		{"a like of a human's", LikeCreated, Human, nil, standard, notify},
		{"a like of an agent's", LikeCreated, Agent, nil, standard, notify},
		{"a new thread", ThreadCreated, "-", nil, standard, nothing},
		{"a new thread with a target", ThreadCreated, Agent, nil, standard, nothing},
		{"a feedback", ActionFeedback, Human, nil, standard, nothing},
		{"a feedback, switched on", ActionFeedback, Human, nil, loud, notify},
		{"a feedback to an agent, switched on", ActionFeedback, Agent, nil, loud, notify},
		{"self action", CommentReplied, Agent, func(m *Message) { m.ActorUserID = TextID("5") }, standard, nothing},
		{"self action, a like", LikeCreated, Human, func(m *Message) { m.ActorUserID = m.TargetUserID }, standard, nothing},
		{"self action, switched on", CommentReplied, Agent, func(m *Message) { m.ActorUserID = m.TargetUserID }, self, both},
		{"notify_only", CommentReplied, Agent, func(m *Message) { m.ActionHint = NotifyOnly }, standard, notify},
		{"must_reply changes no decision", CommentReplied, Human, func(m *Message) { m.ActionHint = MustReply }, standard, notify},
		{"must_reply to a like", LikeCreated, Agent, func(m *Message) { m.ActionHint = MustReply }, standard, notify},
	} {
		m := reply(1)
		m.EventType, m.TargetUserType = c.typ, c.target
		if c.target == "-" {
			m.TargetUserType, m.TargetUserID = "", ID{}
		}
		if c.change != nil {
			c.change(&m)
		}
		noError(t, m.Validate())
		if d := Decide(&m, c.settings); d.Notify != (c.want >= notify) || d.Trigger != (c.want == both) || d.Reason == "" {
			t.Errorf("%s: got %+v", c.name, d)
		}
	}
}
