package serve

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"thread/event"
	"thread/internal/jsonform"
	"thread/internal/page"
	"thread/internal/terminal"
)

// topThread is a line of top --json.
type topThread struct {
	Thread    string         `json:"thread"`
	Events    *int64         `json:"event_count"` // null: the thread cannot be read
	Pushed    *string        `json:"last_pushed_at"`
	Consumers []topConsumer  `json:"consumers"`
	Problems  []page.Problem `json:"problems"` // as the first page lists them
	Error     string         `json:"error,omitempty"`
}

type topConsumer struct {
	Consumer string  `json:"consumer_id"`
	Pending  *int64  `json:"pending_count"` // null: not known
	Oldest   *string `json:"oldest_pending_at"`
	State    string  `json:"state"` // a page.State
	Since    *string `json:"running_since"`
	Until    *string `json:"waiting_until"`
	Dead     int64   `json:"dead_count"`
	Error    *string `json:"last_error"`
}

func newTopThread(s *page.Seen, now time.Time) topThread {
	j := topThread{Thread: s.Dir, Consumers: make([]topConsumer, len(s.Consumers)), Pushed: jsonform.Null(s.Pushed)}
	j.Problems = append([]page.Problem{}, page.Problems([]page.Seen{*s}, now)...)
	if s.Err != nil {
		j.Error = s.Err.Error()
		return j
	}
	j.Events = &s.Info.EventCount
	for i := range s.Consumers {
		j.Consumers[i] = newTopConsumer(&s.Consumers[i], now)
	}
	return j
}

func newTopConsumer(c *jsonform.ConsumerState, now time.Time) topConsumer {
	s := page.StandingOf(c, nil, now)
	j := topConsumer{Consumer: c.Consumer, State: strings.ToLower(s.State.String()), Dead: c.Dead, Error: jsonform.Null(s.Error)}
	if c.PendingErr == nil {
		j.Pending, j.Oldest = &c.Pending, jsonform.Null(c.Oldest)
	}
	if s.State == page.Running {
		j.Since = jsonform.TimeText(c.Handler.RunningSince)
	}
	if until := until(c, &s); !until.IsZero() {
		j.Until = jsonform.TimeText(&until)
	}
	return j
}

// until is when a consumer is tried again, or its lease ends, zero for no time.
func until(c *jsonform.ConsumerState, s *page.Standing) time.Time {
	if s.Next.IsZero() && s.State == page.Running && c.Lease.Number != 0 {
		return c.Lease.Until
	}
	return s.Next
}

// topView lays out what was seen.
type topView struct {
	now     time.Time
	columns int // of the terminal, 0: there is none
}

// topLine is a line of a terminal.
type topLine struct {
	text string
	kind topKind
}

type topKind int

const (
	topPlain topKind = iota
	topTitle
	topHeader
	topThreadLine
	topTrouble
)

// worst is the worst state of a thread's consumers.
func worst(s *page.Seen, now time.Time) page.State {
	if s.Err != nil {
		return page.Unknown
	}
	state := page.OK
	if s.Failed > 0 {
		state = page.Failed
	}
	for i := range s.Consumers {
		if r := page.Rank(&s.Consumers[i], now); r.Problem() {
			state = min(state, r)
		}
	}
	return state
}

// sorted puts the worst first, as the first page does, and returns all.
func (v *topView) sorted(all []page.Seen) []page.Seen {
	slices.SortStableFunc(all, func(a, b page.Seen) int {
		return cmp.Or(cmp.Compare(worst(&a, v.now), worst(&b, v.now)), strings.Compare(a.Dir, b.Dir))
	})
	return all
}

// plain prints a line for each consumer, with a tab between its parts.
func (v *topView) plain(out *terminal.Output, all []page.Seen) error {
	table := terminal.Table{Out: out}
	for i := range v.sorted(all) {
		s := &all[i]
		events := fmt.Sprint(s.Info.EventCount)
		if s.Err != nil {
			events = "-"
		}
		row := []string{terminal.Printable(s.Dir), events, orDash(terminal.Printable(s.Pushed))}
		if len(s.Consumers) == 0 || s.Err != nil {
			text := ""
			if s.Err != nil {
				text = s.Err.Error()
			}
			if err := table.Row(append(row, "-", "-", "-", "-", "-", orDash(terminal.Printable(text)))...); err != nil {
				return err
			}
			continue
		}
		for k := range s.Consumers {
			c := &s.Consumers[k]
			st := page.StandingOf(c, nil, v.now)
			at := "-"
			if until := until(c, &st); !until.IsZero() {
				at = event.FormatTime(until)
			}
			if err := table.Row(append(row[:3:3], terminal.Printable(c.Consumer), unread(c), fmt.Sprint(c.Dead), strings.ToLower(st.State.String()), at, orDash(terminal.Printable(st.Error)))...); err != nil {
				return err
			}
		}
	}
	return table.Flush()
}

func orDash(s string) string { return cmp.Or(s, "-") }

func unread(c *jsonform.ConsumerState) string {
	if c.PendingErr != nil {
		return "?"
	}
	return fmt.Sprint(c.Pending)
}

// lines are for a terminal: a title, and a table of threads and their consumers.
func (v *topView) lines(all []page.Seen) []topLine {
	bases := map[string]int{}
	for i := range v.sorted(all) {
		bases[filepath.Base(all[i].Dir)]++
	}
	list := []topLine{{v.now.Format(time.TimeOnly) + "  " + page.Headline(len(page.Problems(all, v.now))), topTitle}, {"", topPlain}}
	var text bytes.Buffer
	out := terminal.Output{W: &text} // a buffer takes everything
	table := terminal.Table{Out: &out, Columns: v.columns, Least: []int{8, 6, 4}, Last: v.columns/2 - 4}
	kinds := []topKind{topHeader}
	_ = table.Row("THREAD", "UNREAD", "DEAD", "STATE")
	for i := range all {
		s := &all[i]
		name := filepath.Base(s.Dir)
		if bases[name] > 1 {
			name = s.Dir
		}
		kind := topThreadLine
		if s.Err != nil || s.Failed > 0 {
			kind = topTrouble
		}
		kinds = append(kinds, kind)
		_ = table.Row(terminal.Printable(name), "", "", v.thread(s))
		for k := range s.Consumers {
			c := &s.Consumers[k]
			if kind = topPlain; page.Rank(c, v.now).Problem() {
				kind = topTrouble
			}
			kinds = append(kinds, kind)
			_ = table.Row("  "+terminal.Printable(c.Consumer), unread(c), fmt.Sprint(c.Dead), v.consumer(c))
		}
	}
	_ = table.Flush()
	_ = out.Flush()
	for i, line := range strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n") {
		list = append(list, topLine{strings.TrimRight(line, " "), kinds[i]})
	}
	return list
}

// thread is how a thread is doing.
func (v *topView) thread(s *page.Seen) string {
	if s.Err != nil {
		return terminal.Printable(s.Err.Error())
	}
	text := fmt.Sprintf("%d events", s.Info.EventCount)
	if s.Info.EventCount == 1 {
		text = "1 event"
	}
	if s.Pushed != "" {
		text += ", last " + terminal.Printable(page.Age(v.now, &s.Pushed)) + " ago"
	}
	switch s.Failed {
	case 0:
	case 1:
		text += ", 1 run has failed"
	default:
		text += fmt.Sprintf(", %d runs have failed", s.Failed)
	}
	return text
}

// consumer is how a consumer is doing, in the words of the pages.
func (v *topView) consumer(c *jsonform.ConsumerState) string {
	s := page.StandingOf(c, nil, v.now)
	text := s.State.String()
	switch until := until(c, &s); {
	case c.Handler.Running && c.Handler.RunningSince != nil:
		text += " for " + short(v.now.Sub(*c.Handler.RunningSince))
	case s.State == page.Running && !until.IsZero() && !until.After(v.now):
		text = "lease ended"
	case s.State == page.Running && !until.IsZero():
		text += ", lease ends in " + short(until.Sub(v.now))
	case !until.IsZero():
		text += ", next in " + short(until.Sub(v.now))
	}
	if c.Dead > 0 {
		text += fmt.Sprintf(", %d dead", c.Dead)
	}
	if s.Error != "" {
		text += ": " + terminal.Printable(s.Error)
	}
	return text
}

// short is a time in whole seconds.
func short(d time.Duration) string { return max(0, d).Round(time.Second).String() }
