package cli

import (
	"slices"
	"strings"
)

// Topics of the commands. The overview lists the commands of the first three, which
// are used every day, and names the commands of the others. Each has at most eight.
const (
	TopicEvents    = "events"
	TopicConsumers = "consumers"
	TopicState     = "state"
	TopicSteer     = "steer"
	TopicQuestions = "questions"
	TopicSchedule  = "schedule"
	TopicServer    = "server"
	TopicAgents    = "agents"
	TopicOutside   = "outside"
	TopicUpkeep    = "upkeep"
	TopicMove      = "move"
)

// topic is a group of the overview.
type topic struct {
	name, title string
	everyday    bool
}

func topics() []topic {
	return []topic{
		{TopicEvents, "Store and read events", true},
		{TopicConsumers, "Process events", true},
		{TopicState, "See what happens", true},
		{TopicSteer, "Steer consumers", false},
		{TopicQuestions, "Ask, count and filter", false},
		{TopicSchedule, "Push later, or repeatedly", false},
		{TopicServer, "One resident process, and its handlers", false},
		{TopicAgents, "Recorded runs and sessions", false},
		{TopicOutside, "Outbox and brokers", false},
		{TopicUpkeep, "Space, backups and damage", false},
		{TopicMove, "SQLite, PostgreSQL and the shell", false},
	}
}

// Topic is the entries that stand in the overview together.
type Topic struct {
	Title    string
	Everyday bool
	Entries  []*Entry

	name string
}

// Topics returns the entries in the order of help, manual and completion. Entries
// without a topic, as a program other than thread has them, come first.
func (p *Program) Topics() []Topic {
	all := []Topic{{Title: "Commands", Everyday: true}}
	for _, t := range topics() {
		all = append(all, Topic{Title: t.title, Everyday: t.everyday, name: t.name})
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		at := max(0, slices.IndexFunc(all, func(t Topic) bool { return t.name == e.Topic }))
		all[at].Entries = append(all[at].Entries, e)
	}
	return slices.DeleteFunc(all, func(t Topic) bool { return len(t.Entries) == 0 })
}

// ordered returns the entries in that order.
func (p *Program) ordered() (entries []*Entry) {
	for _, t := range p.Topics() {
		entries = append(entries, t.Entries...)
	}
	return entries
}

// items returns the commands with their summaries.
func (t *Topic) items() (items []item) {
	for _, e := range t.Entries {
		v := e.Show()
		items = append(items, item{strings.TrimSpace(v.Name + " " + v.Args), v.Summary})
	}
	return items
}

// short returns the commands with their summaries, commands of two words once:
// "dead list|show", with the summary of the first.
func (t *Topic) short() (items []item) {
	before := ""
	for _, e := range t.Entries {
		v := e.Show()
		first, second, two := strings.Cut(v.Name, " ")
		if two && first == before {
			items[len(items)-1].term += "|" + second
			continue
		}
		before = first
		term := v.Name
		if !two {
			term = strings.TrimSpace(v.Name + " " + v.Args)
		}
		items = append(items, item{term, v.Summary})
	}
	return items
}

// names returns the commands alone.
func (t *Topic) names() string {
	var names []string
	for _, it := range t.short() {
		name, _, _ := strings.Cut(it.term, " <")
		name, _, _ = strings.Cut(name, " [")
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// topicWhich is the name of a help text that says which command is for what.
const (
	topicWhich = "which"

	which = `What happened is an event, what is to be done is a job. If in doubt, use events.

Which one do I use?
  push                        An event: something happened, for any number of
                              readers
  push --delay, schedule add  A schedule: an event that comes later, or again
                              and again
  run enqueue, run work       A job: a piece of work for one worker; unique,
                              ranked, retried, limited, joined
  run do, run wait            In a job: a step that is not repeated; waiting
                              for a person, an event, a run or a time
  run exec, session start     A record of an agent's work: steps, tools, messages
  outbox add, outbox take     An outbox: a message that exists only if the change
                              in a database does
  trigger run, publish run    A bridge: messages of a broker become events, or
                              events become messages
`
)

// topicOverview returns the commands of a topic, or "" for a word that names none.
func (p *Program) topicOverview(name string, columns int) string {
	switch name {
	case "":
		return ""
	case topicWhich:
		return which
	}
	for _, t := range p.Topics() {
		if t.name == name {
			h := helpText{columns: columns}
			h.fill(t.Title, 0, 0)
			h.section("Commands:", t.items())
			return h.b.String()
		}
	}
	return ""
}
