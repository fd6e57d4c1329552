package outbox

// Decision is what follows from a message (O-04, O-05).
type Decision struct {
	Notify  bool   // write a notification for the target
	Trigger bool   // run the agent's handler
	Reason  string // in a word or two, such as "self action"
}

// Decide applies the decision table. A broadcast does neither: the process that polls for
// events of that type finds it in the thread.
func Decide(m *Message, s Settings) Decision {
	target := !m.TargetUserID.IsNull()
	agent := m.TargetUserType == Agent
	d := Decision{}
	switch m.EventType {
	case CommentReplied:
		d = Decision{true, agent, "reply"}
	case CommentCreated:
		if m.Depth > 1 { // the one who is replied to is told by comment.replied
			return Decision{Reason: "not an answer of level 1"}
		}
		d = Decision{true, false, "answer"}
	case MentionCreated:
		d = Decision{true, agent && s.MentionTriggers, "mention"}
	case LikeCreated:
		d = Decision{true, false, "like"}
	case ThreadCreated:
		return Decision{Reason: "broadcast"}
	case ActionFeedback:
		d = Decision{s.FeedbackNotifies, false, "feedback"}
	}
	switch {
	case !target:
		return Decision{Reason: "no target"}
	case m.ActorUserID.String() == m.TargetUserID.String() && !s.SelfAction:
		return Decision{Reason: "self action"}
	case m.ActionHint == NotifyOnly:
		d.Trigger = false
	}
	return d
}
