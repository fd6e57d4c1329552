package trigger

import (
	"context"
	"fmt"

	"thread/event"
	"thread/filter"
)

// Question is what governance is asked about one message.
type Question struct {
	Source    string `json:"source"` // queue_trigger
	Queue     string `json:"queue"`
	MessageID string `json:"message_id"`
	TenantID  string `json:"tenant_id"`
	EventName string `json:"event_name"`

	Draft event.Draft `json:"-"` // the event that would be stored
}

// Answer is what governance says.
type Answer struct {
	Allow  bool   `json:"allow"`
	Reason string `json:"reason"`
}

// Governor decides about messages. An error means that it could not.
type Governor interface {
	Ask(ctx context.Context, q *Question) (Answer, error)
	Close() error
}

// newGovernor returns the governor of the configuration, nil when there is none.
func newGovernor(g *Governance) (Governor, error) {
	switch {
	case g.Filter != "":
		f, err := filter.Compile(g.Filter)
		return &filterGovernor{f: f}, err
	case len(g.Command) > 0:
		return newCoprocess(g), nil
	}
	return nil, nil
}

// filterGovernor lets in what a filter selects. The id and the time of an event
// that is not stored yet are not known: id is 0 and created_at is empty.
type filterGovernor struct{ f *filter.Filter }

func (g *filterGovernor) Ask(_ context.Context, q *Question) (Answer, error) {
	row := filter.Row{Source: q.Draft.Source, Type: q.Draft.Type, Content: q.Draft.Content}
	if q.Draft.Subtype != nil {
		row.Subtype, row.HasSubtype = *q.Draft.Subtype, true
	}
	ok, err := g.f.Matcher().Match(&row)
	if err != nil {
		return Answer{}, err
	}
	if !ok {
		return Answer{Reason: fmt.Sprintf("governance.filter %s does not select it", g.f.Text())}, nil
	}
	return Answer{Allow: true}, nil
}

func (g *filterGovernor) Close() error { return nil }
