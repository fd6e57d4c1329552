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
	"thread/internal/cli"
	"thread/internal/jsonform"
	"thread/internal/page"
)

// topThread is a line of top --json.
type topThread struct {
	Thread    string        `json:"thread"`
	Events    *int64        `json:"event_count"` // null: the thread cannot be read
	Pushed    *string       `json:"last_pushed_at"`
	Consumers []topConsumer `json:"consumers"`
	Error     string        `json:"error,omitempty"`
}

type topConsumer struct {
	Consumer string  `json:"consumer_id"`
	Pending  *int64  `json:"pending_count"` // null: not known
	Oldest   *string `json:"oldest_pending_at"`
	State    string  `json:"state"` // see stateOf
	Since    *string `json:"running_since"`
	Until    *string `json:"waiting_until"`
	Dead     int64   `json:"dead_count"`
	Error    *string `json:"last_error"`
}

func newTopThread(s *page.Seen) topThread {
	j := topThread{Thread: s.Dir, Consumers: make([]topConsumer, len(s.Consumers)), Pushed: jsonform.Null(s.Pushed)}
	if s.Err != nil {
		j.Error = s.Err.Error()
		return j
	}
	j.Events = &s.Info.EventCount
	for i := range s.Consumers {
		j.Consumers[i] = newTopConsumer(&s.Consumers[i])
	}
	return j
}

func newTopConsumer(c *jsonform.ConsumerState) topConsumer {
	state, until := stateOf(c)
	j := topConsumer{Consumer: c.Consumer, State: state, Dead: c.Dead, Error: jsonform.Null(lastError(c))}
	if c.PendingErr == nil {
		j.Pending, j.Oldest = &c.Pending, jsonform.Null(c.Oldest)
	}
	if state == "running" {
		j.Since = jsonform.TimeText(c.Handler.RunningSince)
	}
	if !until.IsZero() {
		j.Until = jsonform.TimeText(&until)
	}
	return j
}

// stateOf is what a consumer does, in a word, and until when, zero for no time.
func stateOf(c *jsonform.ConsumerState) (word string, until time.Time) {
	h := &c.Handler
	switch {
	case c.FilterErr != nil:
		return "broken", until
	case h.Running:
		return "running", until
	case c.Paused:
		return "paused", until
	case c.Lease.Number != 0: // with thread next
		return "out", c.Lease.Until
	case c.Out > 0: // with thread consume --parallel
		return "out", until
	case h.RetryAt != nil:
		return "waiting", *h.RetryAt
	case c.Failing != 0 && !c.NextAt.IsZero():
		return "waiting", c.NextAt
	case h.Stalled:
		return "stalled", until
	case h.Interrupted:
		return "interrupted", until
	case h.Stopped || h.Left:
		return "stopped", until
	}
	return "idle", until
}

// lastError is why a consumer does not get on, and else why its newest dead letter is
// one; "" when there is neither.
func lastError(c *jsonform.ConsumerState) string { return cmp.Or(c.Trouble(), c.DeadError) }

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

// trouble says how badly a thread needs somebody, 0 for not at all.
func trouble(s *page.Seen) int {
	if s.Err != nil {
		return 3
	}
	worst := 0
	for i := range s.Consumers {
		c := &s.Consumers[i]
		switch {
		case c.Dead > 0 || lastError(c) != "":
			return 2
		case c.Pending > 0:
			worst = 1
		}
	}
	return worst
}

// sorted puts what is in trouble first, and returns all.
func (*topView) sorted(all []page.Seen) []page.Seen {
	slices.SortStableFunc(all, func(a, b page.Seen) int {
		return cmp.Or(trouble(&b)-trouble(&a), strings.Compare(a.Dir, b.Dir))
	})
	return all
}

// plain prints a line for each consumer, with a tab between its parts.
func (v *topView) plain(out *cli.Output, all []page.Seen) error {
	table := cli.Table{Out: out}
	for i := range v.sorted(all) {
		s := &all[i]
		events := fmt.Sprint(s.Info.EventCount)
		if s.Err != nil {
			events = "-"
		}
		row := []string{cli.Printable(s.Dir), events, orDash(cli.Printable(s.Pushed))}
		if len(s.Consumers) == 0 || s.Err != nil {
			text := ""
			if s.Err != nil {
				text = s.Err.Error()
			}
			if err := table.Row(append(row, "-", "-", "-", "-", "-", orDash(cli.Printable(text)))...); err != nil {
				return err
			}
			continue
		}
		for k := range s.Consumers {
			c := &s.Consumers[k]
			state, until := stateOf(c)
			at := "-"
			if !until.IsZero() {
				at = event.FormatTime(until)
			}
			if err := table.Row(append(row[:3:3], cli.Printable(c.Consumer), unread(c), fmt.Sprint(c.Dead), state, at, orDash(cli.Printable(lastError(c))))...); err != nil {
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
	rows, bases := make([]page.Row, len(all)), map[string]int{}
	for i := range v.sorted(all) {
		rows[i] = all[i].Row()
		bases[filepath.Base(all[i].Dir)]++
	}
	wrong, _ := page.Wrong(rows)
	list := []topLine{{v.now.Format(time.TimeOnly) + "  " + wrong, topTitle}, {"", topPlain}}
	var text bytes.Buffer
	out := cli.Output{W: &text} // a buffer takes everything
	table := cli.Table{Out: &out, Columns: v.columns, Least: []int{8, 6, 4}, Last: v.columns/2 - 4}
	kinds := []topKind{topHeader}
	_ = table.Row("THREAD", "UNREAD", "DEAD", "STATE")
	for i := range all {
		s := &all[i]
		name := filepath.Base(s.Dir)
		if bases[name] > 1 {
			name = s.Dir
		}
		kind := topThreadLine
		if s.Err != nil {
			kind = topTrouble
		}
		kinds = append(kinds, kind)
		_ = table.Row(cli.Printable(name), "", "", v.thread(s))
		for k := range s.Consumers {
			c := &s.Consumers[k]
			if kind = topPlain; c.Dead > 0 || lastError(c) != "" {
				kind = topTrouble
			}
			kinds = append(kinds, kind)
			_ = table.Row("  "+cli.Printable(c.Consumer), unread(c), fmt.Sprint(c.Dead), v.consumer(c))
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
		return cli.Printable(s.Err.Error())
	}
	text := fmt.Sprintf("%d events", s.Info.EventCount)
	if s.Info.EventCount == 1 {
		text = "1 event"
	}
	if s.Pushed != "" {
		text += ", last " + cli.Printable(page.Age(v.now, &s.Pushed)) + " ago"
	}
	return text
}

// consumer is how a consumer is doing.
func (v *topView) consumer(c *jsonform.ConsumerState) string {
	text, until := stateOf(c)
	switch {
	case text == "running" && c.Handler.RunningSince != nil:
		text += " " + short(v.now.Sub(*c.Handler.RunningSince))
	case text == "out" && !until.IsZero() && !until.After(v.now):
		text = "lease over"
	case !until.IsZero():
		text += " " + short(until.Sub(v.now))
	}
	if why := lastError(c); why != "" {
		text += ": " + cli.Printable(why)
	}
	return text
}

// short is a time in whole seconds.
func short(d time.Duration) string { return max(0, d).Round(time.Second).String() }
