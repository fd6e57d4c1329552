package dispatch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// Place says where an event is for a consumer.
type Place string

const (
	PlaceNowhere   Place = "not stored"  // there is no such event
	PlaceUnmatched Place = "not matched" // the consumer's filter does not select it
	PlaceBroken    Place = "bad filter"  // the filter is invalid, or fails on the event
	PlaceAcked     Place = "acked"       // at or before the progress
	PlacePaused    Place = "paused"      // pending, and the subscription is paused
	PlaceRunning   Place = "running"     // pending, and the handler runs
	PlaceRetrying  Place = "retrying"    // pending, and a supervisor waits to run the handler again
	PlaceStalled   Place = "stalled"     // pending, and the handler has failed too often
	PlaceStopped   Place = "stopped"     // pending, and the handler left it unread
	PlacePending   Place = "pending"     // no process has started a handler for it yet
)

// Answer is where an event is for a consumer, and why, in plain words.
type Answer struct {
	Place Place
	Text  string // sentences; the filter in them may hold any character
}

// Why explains where the event with the given id is for a consumer. It reads the
// event, and the ids of those that are unread before it. It returns
// engine.ErrNoSubscription for an unknown consumer.
func Why(ctx context.Context, t *engine.Thread, consumer string, id int64) (Answer, error) {
	d, err := t.DueFor(ctx, consumer, 0)
	if err != nil {
		return Answer{}, err
	}
	e, found, err := eventWith(ctx, t, id)
	switch {
	case err != nil:
		return Answer{}, err
	case id > d.Newest || id <= 0:
		return Answer{PlaceNowhere, fmt.Sprintf("There is no event %d; the newest is %d.", id, d.Newest)}, nil
	case !found:
		return Answer{PlaceNowhere, fmt.Sprintf("Event %d is not stored any more, or never was; the newest is %d.", id, d.Newest)}, nil
	}
	if a, ok := explainFilter(d.Where(), &e); !ok {
		return a, nil
	}
	switch from := d.Progress.From(); {
	case id <= from:
		return Answer{PlaceAcked, fmt.Sprintf("It matches, and the consumer has acked everything up to %d.", d.Progress.LastAcked)}, nil
	case d.Paused:
		return Answer{PlacePaused, "It matches and is unread, but the subscription is paused: thread resume ends that."}, nil
	case d.Err != nil:
		// An event before this one ends the search: none after it is reached.
		return Answer{PlaceBroken, fmt.Sprintf("It matches, but the filter fails on an unread event, so no handler is started: %v.", d.Err)}, nil
	default:
		if a, ok, err := explainParallel(ctx, t, &d, id); ok || err != nil {
			return a, err
		}
		before, err := countBetween(ctx, t, d.Where(), from, id)
		if err != nil {
			return Answer{}, err
		}
		return explainPending(ctx, t, d, before)
	}
}

// explainParallel is Why for an event that is settled, out or waiting above the
// progress, and while the window is full.
func explainParallel(ctx context.Context, t *engine.Thread, d *engine.Due, id int64) (Answer, bool, error) {
	s, err := t.EventState(ctx, d.Consumer, id)
	if err != nil {
		return Answer{}, false, err
	}
	state, err := Status(t, d.Consumer)
	if err != nil {
		return Answer{}, false, err
	}
	running := Answer{PlaceRunning, "It matches and is in flight: a delivery of it has begun or is about to. thread consume stores its result."}
	switch {
	case s.Settled:
		return Answer{PlaceAcked, fmt.Sprintf("It matches and is settled, out of order: event %d before it is not yet, so that last_acked_id is %d.", d.First, d.Progress.LastAcked)}, true, nil
	case s.Out && state.Running:
		return running, true, nil
	case s.Out:
		idle := explainIdle(ctx, t, d.Consumer)
		if idle.Place == PlaceRunning {
			return running, true, nil
		}
		return Answer{PlacePending, "It matches and was out when its consume ended without a result; the next one delivers it again. " + idle.Text}, true, nil
	case s.Attempts > 0 && !s.NextAt.IsZero():
		return Answer{PlaceRetrying, fmt.Sprintf("It matches and has failed, %s counted, the last time with %s; it is not tried again before %s. It holds up those after it with the same key only.",
			times(int(s.Attempts)), s.LastError, event.FormatTime(s.NextAt))}, true, nil
	}
	info, err := t.Info(ctx)
	if err != nil {
		return Answer{}, false, err
	}
	for i := range info.Subscriptions {
		if c := &info.Subscriptions[i]; c.Consumer == d.Consumer && c.Full() && id != d.First {
			return Answer{PlacePending, fmt.Sprintf("It matches and is unread, and the window is full: %d events after event %d are settled, out or waiting, and nothing new is given out before that one is settled. thread consume --window sets how many may be.",
				c.Settled+c.Out+c.Waiting, d.First)}, true, nil
		}
	}
	return Answer{}, false, nil
}

func eventWith(ctx context.Context, t *engine.Thread, id int64) (event.Event, bool, error) {
	if id <= 0 {
		return event.Event{}, false, nil
	}
	list, err := t.Peek(ctx, engine.Query{After: id - 1, Limit: 1})
	if err != nil || len(list) == 0 || list[0].ID != id {
		return event.Event{}, false, err
	}
	return list[0], true, nil
}

// countBetween counts the events in (after, before) that match.
func countBetween(ctx context.Context, t *engine.Thread, where string, after, before int64) (n int64, err error) {
	for e, err := range t.Events(ctx, engine.Query{After: after, Filter: where}) {
		if errors.Is(err, filter.ErrRuntime) { // it stands alone, whatever matches before
			return countToFailure(ctx, t, where, after, before)
		}
		if err != nil {
			return 0, err
		}
		if e.ID >= before {
			break
		}
		n++
	}
	return n, nil
}

// countToFailure is countBetween for a filter that fails on an event, be it a later one. The
// consumer comes no further than that event.
func countToFailure(ctx context.Context, t *engine.Thread, where string, after, before int64) (n int64, err error) {
	f, err := filter.Compile(where)
	if err != nil {
		return 0, err
	}
	m := f.Matcher()
	for e, err := range t.Events(ctx, engine.Query{After: after}) {
		if err != nil {
			return 0, err
		}
		row := filter.RowOf(&e)
		ok, failed := m.Match(&row)
		if e.ID >= before || failed != nil {
			break
		}
		if ok {
			n++
		}
	}
	return n, nil
}

// explainFilter reports whether the filter selects e, and if not, which of the
// conditions that it joins with AND does not hold.
func explainFilter(where string, e *event.Event) (Answer, bool) {
	row := filter.RowOf(e)
	switch ok, err := selects(where, &row); {
	case errors.Is(err, filter.ErrRuntime):
		return Answer{PlaceBroken, fmt.Sprintf("The filter fails on this event: %v.", err)}, false
	case err != nil:
		return Answer{PlaceBroken, fmt.Sprintf("The filter is invalid: %v.", err)}, false
	case ok:
		return Answer{}, true
	}
	whole, _ := filter.Compile(where) // it is valid
	parts := whole.Explain().Parts
	if len(parts) == 1 {
		return Answer{PlaceUnmatched, fmt.Sprintf("The filter does not select it: %s does not hold; the event has %s.", parts[0].Text, describe(e))}, false
	}
	var failing []string
	for _, p := range parts {
		if ok, err := selects(p.Text, &row); !ok && err == nil {
			failing = append(failing, p.Text)
		}
	}
	return Answer{PlaceUnmatched, fmt.Sprintf("The filter does not select it: of its %d conditions, %s does not hold; the event has %s.",
		len(parts), strings.Join(failing, " and "), describe(e))}, false
}

func selects(where string, row *filter.Row) (bool, error) {
	f, err := filter.Compile(where)
	if err != nil {
		return false, err
	}
	return f.Matcher().Match(row)
}

func describe(e *event.Event) string {
	subtype := "NULL"
	if e.Subtype != nil {
		subtype = "'" + *e.Subtype + "'"
	}
	return fmt.Sprintf("source '%s', type '%s', subtype %s", e.Source, e.Type, subtype)
}

func explainPending(ctx context.Context, t *engine.Thread, d engine.Due, before int64) (Answer, error) {
	s, err := Status(t, d.Consumer)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Place: PlacePending}
	text := fmt.Sprintf("It matches and is unread, behind %d other unread events. ", before)
	if before == 0 {
		text = "It matches and is the first unread event. "
	}
	info, err := t.Info(ctx)
	if err != nil {
		return Answer{}, err
	}
	var lease engine.LeaseState
	for i := range info.Subscriptions {
		if info.Subscriptions[i].Consumer == d.Consumer {
			lease = info.Subscriptions[i].Lease
		}
		if c := &info.Subscriptions[i]; c.Consumer == d.Consumer && c.Failing != 0 {
			text += fmt.Sprintf("Event %d has failed, %s counted, and is not tried again before %s. ",
				c.Failing, times(int(c.Attempts)), event.FormatTime(c.NextAt))
		}
	}
	last := ""
	if s.LastExitAt != nil {
		last = fmt.Sprintf("%s at %s", s.LastExit, event.FormatTime(*s.LastExitAt))
	}
	output := "What the handler printed is in " + OutputPath(t.Dir(), d.Consumer) + "."
	again := "The next push, or thread dispatch, starts afresh. " + output
	switch {
	case d.Pull && lease.Number != 0:
		a.Place = PlaceRunning
		text += fmt.Sprintf("Events %d to %d are in flight with delivery %d of thread next; if that is not acked, they are given out again after %s.",
			lease.First, lease.Last, lease.Number, event.FormatTime(lease.Until))
	case d.Pull:
		text += "The consumer has no handler: the next thread next takes what is unread."
	case s.Running:
		a.Place = PlaceRunning
		text += fmt.Sprintf("The handler runs since %s, run %s; it pops the event, or is run again for it.", event.FormatTime(*s.RunningSince), s.RunID)
	case s.RetryAt != nil && s.Failures > 0:
		a.Place = PlaceRetrying
		text += fmt.Sprintf("The handler has failed %s, the last time with %s; it is run again at %s. %s",
			times(s.Failures), last, event.FormatTime(*s.RetryAt), output)
	case s.RetryAt != nil:
		a.Place = PlaceRetrying
		text += fmt.Sprintf("The handler ended with %s without progress; it is run again at %s.", last, event.FormatTime(*s.RetryAt))
	case s.Stalled:
		a.Place = PlaceStalled
		text += fmt.Sprintf("The handler has failed %s in a row, the last time with %s, and is not tried any more. %s", times(s.Failures), last, again)
	case s.Stopped && s.Unpopped:
		a.Place = PlaceStopped
		text += fmt.Sprintf("The handler ended with %s without popping anything, and left it unread: %s. %s", last, unpoppedFix, again)
	case s.Stopped:
		a.Place = PlaceStopped
		text += fmt.Sprintf("The handler ended with %s and left it unread. %s", last, again)
	case s.Left:
		a.Place = PlaceStopped
		text += fmt.Sprintf("The server that ran the handler was told to end, and left it unread: %s. The next push, server or thread dispatch starts it.", last)
	case s.Interrupted:
		text += "The handler's supervisor was killed, and no process has taken over yet. " + again
	default:
		idle := explainIdle(ctx, t, d.Consumer)
		a.Place, text = idle.Place, text+idle.Text
	}
	a.Text = text
	return a, nil
}

// explainIdle says who will start a handler of the thread that does not run here: what
// can be seen of it, no guesses. It is running where a process on another host works for
// the consumer.
func explainIdle(ctx context.Context, t *engine.Thread, consumer string) Answer {
	if b, ok := t.Store().(store.Board); ok {
		return explainHosts(ctx, b, consumer)
	}
	return Answer{PlacePending, explainDirectory(t)}
}

func explainDirectory(t *engine.Thread) string {
	r := newDispatcher(t, Options{})
	var foreign *OwnerError
	switch {
	case errors.As(Own(t.Dir()), &foreign):
		return fmt.Sprintf("No handler runs for it: %v, whose pushes and dispatches start them.", foreign)
	case r.ping(pingLook, ""):
		return "No handler runs for it; thread serve has been told to look, and runs it when its lane has room."
	case r.trouble() != nil:
		return fmt.Sprintf("No handler can be started for it: %v.", r.trouble())
	}
	if n := r.countSupervised(); n > 0 {
		return fmt.Sprintf("No handler runs for it; the handlers of %s of the thread run or wait for a retry, and when one ends, its supervisor looks again. If it is not for want of a slot or of a place in its lane, thread dispatch starts it.", consumers(n))
	}
	return "No handler runs for it. Unless it was pushed a moment ago, no process is about to start one, as with THREAD_DISPATCH=none; thread dispatch does."
}

// explainHosts is explainIdle for a thread on a server.
func explainHosts(ctx context.Context, b store.Board, consumer string) Answer {
	if holder, _ := b.Holder(ctx, consumer); holder != "" { // the next read returns the error
		return Answer{PlaceRunning, holder + " works for the consumer, and delivers it."}
	}
	hosts, err := store.Hosts(ctx, b)
	switch {
	case err != nil:
		return Answer{PlacePending, fmt.Sprintf("The processes that serve the thread cannot be listed: %v.", err)}
	case len(hosts) == 0:
		return Answer{PlacePending, "No process works for the consumer: start thread serve, or thread consume for it, on any host."}
	case len(hosts) == 1:
		return Answer{PlacePending, "thread serve runs, and starts the handler when its lane has room."}
	}
	return Answer{PlacePending, fmt.Sprintf("thread serve runs on %d hosts, and one of them starts the handler when its lane has room.", len(hosts))}
}

// countEngaged counts the consumers that have a supervisor.
func (r *dispatcher) countSupervised() (n int) {
	paths, _ := filepath.Glob(filepath.Join(r.run, "*.busy"))
	for _, path := range paths {
		if held, err := isHeld(path); held && err == nil {
			n++
		}
	}
	return n
}

func consumers(n int) string {
	if n == 1 {
		return "another consumer"
	}
	return fmt.Sprintf("%d other consumers", n)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
