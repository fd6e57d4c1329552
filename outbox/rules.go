package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"thread/engine"
	"thread/filter"
	"thread/internal/duration"
	"thread/internal/similar"
)

// Rules say which messages a thread takes, and what follows from each. They are kept in the
// thread. A nil *Rules is the forum of O-03 to O-06.
type Rules struct {
	types  map[string]*typeRule
	agents map[string]*agentRule
	text   string
}

// typeRule is about the messages of one type. Members are named without quotes or paths.
type typeRule struct {
	required []string // members that are not null
	key      string   // the dedupe key, with {member} for the text of a member; "" for the event_id
	notify   string   // the member with the user who is notified; "" for none
	agent    string   // the agent that answers, a key of Rules.agents; "" for none

	notifyIf, agentIf *filter.Filter // conditions on the event of the message; nil for always
}

// agentRule is about an agent.
type agentRule struct {
	user    string        // the member with the user that the agent is; "" for none
	handler string        // a shell command; "" for the handler of the settings
	timeout time.Duration // of one run of the handler; 0 for the timeout of the settings
}

// The bounds of rules.
const (
	MaxRulesBytes = 64 << 10 // of their JSON form
	maxTypeBytes  = 256
)

var rulesKey = []byte("rules")

// ParseRules reads rules from a JSON object and checks them:
//
//	{"types":  {TYPE: {"required": [MEMBER], "key": TEXT, "notify": MEMBER, "notify_if": FILTER, "agent": NAME, "agent_if": FILTER}},
//	 "agents": {NAME: {"user": MEMBER, "handler": COMMAND, "timeout": DURATION}}}
//
// Everything except "types" may be left out. The error wraps [event.ErrInvalid] and names the
// place.
func ParseRules(b []byte) (*Rules, error) {
	if len(b) > MaxRulesBytes {
		return nil, invalidf("the rules have %d bytes, the limit is %d", len(b), MaxRulesBytes)
	}
	r := &Rules{types: map[string]*typeRule{}, agents: map[string]*agentRule{}}
	err := object("", b, map[string]func(string, []byte) error{
		"agents": func(at string, b []byte) error {
			return entries(at, b, func(at, name string, b []byte) (err error) {
				r.agents[name], err = parseAgent(at, b)
				return err
			})
		},
		"types": func(at string, b []byte) error {
			return entries(at, b, func(at, name string, b []byte) (err error) {
				r.types[name], err = parseType(at, b)
				return err
			})
		},
	})
	if err != nil {
		return nil, err
	}
	if len(r.types) == 0 {
		return nil, invalidf("the rules have no types")
	}
	for _, name := range slices.Sorted(maps.Keys(r.types)) {
		if agent := r.types[name].agent; agent != "" && r.agents[agent] == nil {
			return nil, invalidf("types.%s.agent: %s", name, similar.Unknown("agent", agent, slices.Sorted(maps.Keys(r.agents))))
		}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, b); err != nil {
		return nil, invalidf("the rules are not JSON: %v", err)
	}
	r.text = compact.String()
	return r, nil
}

// object hands each member of an object to its reader. null is an empty object.
func object(at string, b []byte, members map[string]func(at string, b []byte) error) error {
	return entries(at, b, func(at, name string, b []byte) error {
		read := members[name]
		if read == nil {
			place := strings.TrimSuffix(strings.TrimSuffix(at, name), ".")
			if place == "" {
				place = "the rules"
			}
			return invalidf("%s: %s", place, similar.Unknown("key", name, slices.Sorted(maps.Keys(members))))
		}
		return read(at, b)
	})
}

// entries calls fn for each member of an object.
func entries(at string, b []byte, fn func(at, name string, b []byte) error) error {
	if b = bytes.TrimSpace(b); string(b) == "null" {
		return nil
	}
	list, err := parseObject(b)
	if err != nil {
		return invalidf("%s is not a mapping of keys that are there once", nameOf(at))
	}
	for _, m := range list {
		if !isName(m.Name) {
			return invalidf("%s: %.60q is not a name of at most %d bytes without spaces", nameOf(at), m.Name, maxTypeBytes)
		}
		if err := fn(strings.TrimPrefix(at+"."+m.Name, "."), m.Name, m.Value); err != nil {
			return err
		}
	}
	return nil
}

func nameOf(at string) string {
	if at == "" {
		return "the file"
	}
	return at
}

func isName(s string) bool {
	return s != "" && len(s) <= maxTypeBytes && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}

// text reads a text into to.
func text(to *string) func(string, []byte) error {
	return func(at string, b []byte) error {
		if json.Unmarshal(b, to) != nil || *to == "" {
			return invalidf("%s is not a text", at)
		}
		return nil
	}
}

// condition reads a filter into to.
func condition(to **filter.Filter) func(string, []byte) error {
	return func(at string, b []byte) error {
		var s string
		if err := text(&s)(at, b); err != nil {
			return err
		}
		f, err := filter.Compile(s)
		if err != nil {
			return invalidf("%s: %v", at, err)
		}
		*to = f
		return nil
	}
}

func parseType(at string, b []byte) (*typeRule, error) {
	t := new(typeRule)
	return t, object(at, b, map[string]func(string, []byte) error{
		"required": func(at string, b []byte) error {
			if json.Unmarshal(b, &t.required) != nil || slices.Contains(t.required, "") {
				return invalidf("%s is not a list of members", at)
			}
			return nil
		},
		"key": text(&t.key), "notify": text(&t.notify), "notify_if": condition(&t.notifyIf),
		"agent": text(&t.agent), "agent_if": condition(&t.agentIf),
	})
}

func parseAgent(at string, b []byte) (*agentRule, error) {
	a := new(agentRule)
	return a, object(at, b, map[string]func(string, []byte) error{
		"user": text(&a.user), "handler": text(&a.handler),
		"timeout": func(at string, b []byte) error {
			var s string
			err := json.Unmarshal(b, &s)
			if err == nil {
				a.timeout, err = duration.Parse(s)
			}
			if err != nil || a.timeout <= 0 {
				return invalidf("%s is not a time such as 30s or 5m", at)
			}
			return nil
		},
	})
}

// lastRules are the rules that were read last. Mostly the next message has the same.
var lastRules atomic.Pointer[Rules]

// ReadRules returns the rules of the thread, nil for the forum.
func ReadRules(tx *engine.Tx) (*Rules, error) {
	r, err := tx.Records(tableConfig)
	if err != nil {
		return nil, err
	}
	v := r.Get(rulesKey)
	if v == nil {
		return nil, nil
	}
	if last := lastRules.Load(); last != nil && last.text == string(v) {
		return last, nil
	}
	rules, err := ParseRules(v)
	if err != nil {
		return nil, fmt.Errorf("%w: rules of the outbox: %w", engine.ErrCorrupt, err)
	}
	lastRules.Store(rules)
	return rules, nil
}

// WriteRules stores the rules, or with nil the forum again, for all who use the thread
// from then on.
func WriteRules(tx *engine.Tx, rules *Rules) error {
	r, err := tx.Records(tableConfig)
	if err != nil {
		return err
	}
	if rules == nil {
		return r.Delete(rulesKey)
	}
	return r.Put(rulesKey, []byte(rules.text))
}

// Types returns the event types that a thread with these rules takes.
func (r *Rules) Types() []string {
	if r == nil {
		return EventTypes
	}
	types := slices.Sorted(maps.Keys(r.types))
	if r.types[ActionFeedback] == nil {
		types = append(types, ActionFeedback)
	}
	return types
}

// Check reports the first thing that keeps m from being inserted by these rules. The error wraps
// [event.ErrInvalid].
func (r *Rules) Check(m *Message) error {
	if r == nil {
		return m.Validate()
	}
	rule := r.types[m.EventType]
	if rule == nil && m.EventType != ActionFeedback {
		return invalidf("event_type: %s", similar.Unknown("type", m.EventType, r.Types()))
	}
	if err := m.validate(); err != nil || rule == nil {
		return err
	}
	members := m.members()
	for _, name := range rule.required {
		if v := members[name]; v == nil || string(v) == "null" {
			return invalidf("%s is missing, which %s needs", name, m.EventType)
		}
	}
	for _, name := range []string{rule.notify, r.userOf(rule)} {
		if v := members[name]; v != nil && new(ID).UnmarshalJSON(v) != nil {
			return invalidf("%s %.40s is not an integer, a text of at most %d bytes or null", name, v, maxIDBytes)
		}
	}
	return nil
}

// userOf returns the member with the user that the agent of a type is.
func (r *Rules) userOf(rule *typeRule) string {
	if a := r.agents[rule.agent]; a != nil {
		return a.user
	}
	return ""
}

var reference = regexp.MustCompile(`\{([^{}]*)\}`)

// key returns the dedupe key of a message that has none.
func (r *Rules) key(m *Message) string {
	if r == nil {
		return m.DefaultDedupeKey()
	}
	rule := r.types[m.EventType]
	if rule == nil || rule.key == "" {
		return "event:" + m.EventID
	}
	members := m.members()
	return reference.ReplaceAllStringFunc(rule.key, func(ref string) string {
		v := members[ref[1:len(ref)-1]]
		var s string
		switch {
		case string(v) == "null":
			return ""
		case json.Unmarshal(v, &s) == nil:
			return s
		}
		return string(v)
	})
}

// members returns the members of the message, as JSON.
func (m *Message) members() map[string]json.RawMessage {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(m.json(), &members) // it is an object
	return members
}

// plan is a decision, and whom it is about.
type plan struct {
	Decision
	user  ID // who is notified
	agent struct {
		name    string // for its runs
		user    ID     // null for an agent that is not a user
		handler string // a shell command; "" for none
		timeout time.Duration
	}
}

// Decide is the function Decide by these rules.
func (r *Rules) Decide(m *Message, s Settings) (Decision, error) {
	p, err := r.plan(m, s)
	return p.Decision, err
}

// plan decides what follows from a message. The error is about a condition.
func (r *Rules) plan(m *Message, s Settings) (p plan, err error) {
	p.agent.handler, p.agent.timeout = s.Handler, s.Timeout
	var rule *typeRule
	if r != nil {
		rule = r.types[m.EventType]
	}
	if rule == nil { // of the forum, or a feedback
		p.Decision = Decide(m, s)
		p.user, p.agent.user, p.agent.name = m.TargetUserID, m.TargetUserID, m.TargetUserID.String()
		return p, nil
	}
	members := m.members()
	self := func(id ID) bool { return id.String() == m.ActorUserID.String() && !s.SelfAction }
	if p.Notify, err = m.meets(rule.notifyIf); err != nil {
		return p, err
	}
	p.user = idIn(members, rule.notify)
	p.Notify = p.Notify && !p.user.IsNull() && !self(p.user)
	p.Reason = "by the rules"
	a := r.agents[rule.agent]
	if a == nil {
		return p, nil
	}
	if p.Trigger, err = m.meets(rule.agentIf); err != nil {
		return p, err
	}
	if p.agent.name = rule.agent; a.user != "" {
		p.agent.user = idIn(members, a.user)
		p.agent.name = p.agent.user.String()
		p.Trigger = p.Trigger && !p.agent.user.IsNull() && !self(p.agent.user)
	}
	if a.handler != "" {
		p.agent.handler = a.handler
	}
	if a.timeout > 0 {
		p.agent.timeout = a.timeout
	}
	p.Trigger = p.Trigger && m.ActionHint != NotifyOnly
	return p, nil
}

// idIn returns the user that a member names, null for none.
func idIn(members map[string]json.RawMessage, name string) (id ID) {
	v := members[name]
	if v == nil || id.UnmarshalJSON(v) != nil {
		return ID{}
	}
	return id
}

// meets reports whether the event of the message meets a condition.
func (m *Message) meets(f *filter.Filter) (bool, error) {
	if f == nil {
		return true, nil
	}
	return f.Matcher().Match(&filter.Row{CreatedAt: m.OccurredAt, Source: Source, Type: m.EventType, Content: string(m.json())})
}
