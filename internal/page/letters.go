package page

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"thread/engine"
)

// lettersAtOnce bounds how many dead letters are changed in one transaction.
const lettersAtOnce = 500

// Confirm is the page before dead letters are changed: how many there are.
type Confirm struct {
	Do       string
	Consumer string
	Filter   string
	Event    int64
	Error    *string
	Count    int
	Changed  bool // there were as many as another count when it was asked for
}

// selection is which dead letters an action is about. Both strings are compared whole.
type selection struct {
	consumer, filter string
	event            int64   // 0: of any event
	lastError        *string // nil: any
}

// matching returns the letters without the contents of their events.
func (s *selection) matching(ctx context.Context, t *engine.Thread) (list []engine.DeadLetter, err error) {
	for l, err := range t.DeadLetters(ctx, engine.DeadLetterQuery{Consumer: s.consumer, Filter: s.filter, ID: s.event}) {
		if err != nil {
			return nil, err
		}
		if s.lastError != nil && l.LastError != *s.lastError {
			continue
		}
		l.Event.Content = ""
		list = append(list, l)
	}
	return list, nil
}

// to says whose all of the letters are, "" for several.
func to(list []engine.DeadLetter) string {
	if len(list) == 0 || slices.ContainsFunc(list, func(l engine.DeadLetter) bool { return l.Consumer != list[0].Consumer }) {
		return ""
	}
	return " to " + short(list[0].Consumer)
}

// String says which letters they are, for the list of changes.
func (s *selection) String() string {
	var parts []string
	if s.consumer != "" {
		parts = append(parts, s.consumer)
	}
	if s.event != 0 {
		parts = append(parts, fmt.Sprintf("event %d", s.event))
	}
	if s.filter != "" {
		parts = append(parts, "where "+s.filter)
	}
	if s.lastError != nil {
		parts = append(parts, "with the error "+*s.lastError)
	}
	return strings.Join(parts, ", ")
}

// change calls do with some of the letters at a time.
func change(ctx context.Context, list []engine.DeadLetter, do func(context.Context, []engine.DeadLetter) (int64, error)) error {
	for some := range slices.Chunk(list, lettersAtOnce) {
		if _, err := do(ctx, some); err != nil {
			return err
		}
	}
	return nil
}
