package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
	"thread/outbox"
)

// thread makes an answer out of what do says of the request's thread, nil for nothing.
func (a *API) thread(do func(q *http.Request, t Thread) (any, error)) func(http.ResponseWriter, *http.Request) error {
	return func(rw http.ResponseWriter, q *http.Request) error {
		t, err := a.host.Thread(q.PathValue("name"))
		if err != nil {
			return err
		}
		data, err := do(q, t)
		if err != nil {
			return err
		}
		answering(rw)
		if data == nil {
			rw.WriteHeader(http.StatusNoContent)
			return nil
		}
		putJSON(rw, http.StatusOK, data)
		return nil
	}
}

// asked is thread for what has a body, which is read into a new R.
func asked[R any](a *API, do func(q *http.Request, t Thread, r *R) (any, error)) func(http.ResponseWriter, *http.Request) error {
	return func(rw http.ResponseWriter, q *http.Request) error {
		r := new(R)
		if err := decode(q, r); err != nil {
			return err
		}
		return a.thread(func(q *http.Request, t Thread) (any, error) { return do(q, t, r) })(rw, q)
	}
}

// eventOf returns the event of the path.
func eventOf(q *http.Request, t Thread) (e event.Event, err error) {
	id, err := strconv.ParseInt(q.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return e, badRequest("%q is not the id of an event", q.PathValue("id"))
	}
	for e, err := range t.Engine().Events(q.Context(), engine.Query{After: id - 1, Limit: 1}) {
		if err != nil || e.ID == id {
			return e, err
		}
	}
	return e, &Error{http.StatusNotFound, "there is no event " + strconv.FormatInt(id, 10)}
}

func oneEvent(q *http.Request, t Thread) (any, error) {
	e, err := eventOf(q, t)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(e.AppendJSON(nil)), nil
}

func why(q *http.Request, t Thread) (any, error) {
	id, err := strconv.ParseInt(q.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return nil, badRequest("%q is not the id of an event", q.PathValue("id"))
	}
	consumer := q.URL.Query().Get("consumer")
	if consumer == "" {
		return nil, badRequest("consumer is missing")
	}
	answer, err := dispatch.Why(q.Context(), t.Engine(), consumer, id)
	if err != nil {
		return nil, err
	}
	return jsonform.NewWhy(&answer), nil
}

// consumers answers with all that is known of them without reading events.
func consumers(q *http.Request, t Thread) (any, error) {
	info, err := t.Engine().Info(q.Context())
	if err != nil {
		return nil, err
	}
	states := make([]jsonform.ConsumerState, len(info.Subscriptions))
	for i, c := range info.Subscriptions {
		states[i] = jsonform.ConsumerState{ConsumerInfo: c, PendingErr: errNotCounted}
		states[i].Handler, _ = dispatch.Status(t.Engine(), c.Consumer) // without it: as not running
	}
	return jsonform.NewInfo(&info, states), nil
}

var errNotCounted = badRequest("not counted here: see /metrics")

// subscribing is a consumer without a handler: no command comes in over HTTP.
type subscribing struct {
	Filter      *string `json:"filter"`
	MaxAttempts int64   `json:"max_attempts"`
	Paused      bool    `json:"paused"`
}

func subscribe(q *http.Request, t Thread, r *subscribing) (any, error) {
	return nil, t.Engine().Subscribe(q.Context(), engine.Subscription{Consumer: q.PathValue("consumer"), Filter: r.Filter, MaxAttempts: r.MaxAttempts, Paused: r.Paused, Pull: true})
}

func unsubscribe(q *http.Request, t Thread) (any, error) {
	return nil, t.Engine().Unsubscribe(q.Context(), q.PathValue("consumer"))
}

// letter is a dead letter with its event.
type letter struct {
	jsonform.Letter
	Event json.RawMessage `json:"event"`
}

func letters(q *http.Request, t Thread) (any, error) {
	limit, err := limitOf(q)
	if err != nil {
		return nil, err
	}
	id, err := number(q, "event_id", 0)
	if err != nil {
		return nil, err
	}
	p := q.URL.Query()
	list := struct {
		Letters  []letter `json:"letters"`
		Complete bool     `json:"complete"`
	}{[]letter{}, true}
	for l, err := range t.Engine().DeadLetters(q.Context(), engine.DeadLetterQuery{Consumer: p.Get("consumer"), ID: id, Filter: p.Get("filter")}) {
		if err != nil {
			return nil, err
		}
		if int64(len(list.Letters)) == limit {
			list.Complete = false
			break
		}
		list.Letters = append(list.Letters, letter{jsonform.NewLetter(&l), l.Event.AppendJSON(nil)})
	}
	return list, nil
}

// selection names dead letters: of a consumer, an event, or those that match.
type selection struct {
	Consumer string `json:"consumer"`
	EventID  int64  `json:"event_id"`
	Filter   string `json:"filter"`
}

// changeLetters does something with the selected letters, and answers how many there were.
func changeLetters(do func(t *engine.Thread, q *http.Request, some []engine.DeadLetter) (int64, error)) func(q *http.Request, t Thread, r *selection) (any, error) {
	return func(q *http.Request, t Thread, r *selection) (any, error) {
		if *r == (selection{}) {
			return nil, badRequest("consumer, event_id or filter is missing: all dead letters would be taken")
		}
		var some []engine.DeadLetter
		var total struct {
			Count int64 `json:"count"`
		}
		flush := func() error {
			if len(some) == 0 {
				return nil
			}
			n, err := do(t.Engine(), q, some)
			total.Count += n
			some = some[:0]
			return err
		}
		for l, err := range t.Engine().DeadLetters(q.Context(), engine.DeadLetterQuery{Consumer: r.Consumer, ID: r.EventID, Filter: r.Filter}) {
			if err != nil {
				return nil, err
			}
			if some = append(some, l); len(some) == changedAtOnce {
				if err := flush(); err != nil {
					return nil, err
				}
			}
		}
		if err := flush(); err != nil {
			return nil, err
		}
		t.Pushed()
		return total, nil
	}
}

func retryDead(t *engine.Thread, q *http.Request, some []engine.DeadLetter) (int64, error) {
	return t.RetryDead(q.Context(), some)
}

func dropDead(t *engine.Thread, q *http.Request, some []engine.DeadLetter) (int64, error) {
	return t.DropDead(q.Context(), some)
}

func schedules(q *http.Request, t Thread) (any, error) {
	list := struct {
		Schedules []jsonform.Schedule `json:"schedules"`
	}{[]jsonform.Schedule{}}
	all, err := t.Engine().Schedules(q.Context())
	if err != nil {
		return nil, err
	}
	for i := range all {
		list.Schedules = append(list.Schedules, jsonform.NewSchedule(&all[i]))
	}
	once, err := t.Engine().Delayed(q.Context(), maxListed)
	for i := range once {
		list.Schedules = append(list.Schedules, jsonform.NewDelayed(&once[i]))
	}
	return list, err
}

// planning is an event that is pushed later: once, at a time or after a delay, or again and
// again under a name.
type planning struct {
	Name  string          `json:"name"`
	When  string          `json:"when"`
	At    string          `json:"at"`
	Delay string          `json:"delay"`
	Event json.RawMessage `json:"event"`
}

func schedule(q *http.Request, t Thread, r *planning) (any, error) {
	d, _, err := event.ParseDraftLossy(r.Event)
	if err != nil {
		return nil, badRequest("event: %v", err)
	}
	given := 0
	for _, text := range []string{r.When, r.At, r.Delay} {
		if text != "" {
			given++
		}
	}
	if given != 1 || (r.When == "") != (r.Name == "") {
		return nil, badRequest("give at, delay, or name and when")
	}
	if r.When != "" {
		next, err := t.Engine().AddSchedule(q.Context(), engine.Schedule{Name: r.Name, Spec: r.When, Draft: d})
		if err != nil {
			return nil, err
		}
		return jsonform.NewSchedule(&engine.Schedule{Name: r.Name, Spec: r.When, Draft: d, Next: next}), nil
	}
	at := time.Time{}
	delay, err := wait("delay", r.Delay, maxLease)
	if err == nil && r.At != "" {
		if at, err = time.Parse(time.RFC3339Nano, r.At); err != nil {
			err = badRequest("at is not a time as 2026-01-31T09:00:00Z")
		}
	}
	if err != nil {
		return nil, err
	}
	var e event.Event
	var waits engine.Delayed
	if r.At != "" {
		e, waits, err = t.Engine().DelayUntil(q.Context(), d, at)
	} else {
		e, waits, err = t.Engine().DelayFor(q.Context(), d, delay)
	}
	if err != nil {
		return nil, err
	}
	t.Pushed()
	if e.ID != 0 { // it was due
		return json.RawMessage(e.AppendJSON(nil)), nil
	}
	return jsonform.NewDelayed(&waits), nil
}

// unschedule removes what is planned: by its name, or by the number of what comes once.
func unschedule(q *http.Request, t Thread) (any, error) {
	name := q.PathValue("schedule")
	if id, err := strconv.ParseInt(name, 10, 64); err == nil && q.URL.Query().Get("once") == "true" {
		return nil, t.Engine().Cancel(q.Context(), id)
	}
	return nil, t.Engine().RemoveSchedule(q.Context(), name)
}

func (a *API) stateRoutes() []route {
	const name = "/threads/{name}"
	return []route{
		{"GET", name + "/events/{id}", Read, a.thread(oneEvent), nil, 0},
		{"GET", name + "/events/{id}/why", Read, a.thread(why), []string{"consumer"}, 0},
		{"GET", name + "/stats", Read, a.stats, []string{"by", "filter", "since", "limit"}, 0},
		{"GET", name + "/consumers", Read, a.thread(consumers), nil, 0},
		{"PUT", name + "/consumers/{consumer}", Admin, asked(a, subscribe), nil, 0},
		{"DELETE", name + "/consumers/{consumer}", Admin, a.thread(unsubscribe), nil, 0},
		{"GET", name + "/dead", Read, a.thread(letters), []string{"consumer", "event_id", "filter", "limit"}, 0},
		{"POST", name + "/dead/retry", Admin, asked(a, changeLetters(retryDead)), nil, 0},
		{"POST", name + "/dead/drop", Admin, asked(a, changeLetters(dropDead)), nil, 0},
		{"GET", name + "/schedules", Read, a.thread(schedules), nil, 0},
		{"POST", name + "/schedules", Write, asked(a, schedule), nil, 0},
		{"DELETE", name + "/schedules/{schedule}", Write, a.thread(unschedule), []string{"once"}, 0},
	}
}

func (a *API) outboxRoutes() []route {
	const box = "/threads/{name}/outbox"
	return []route{
		{"GET", box + "/messages", Read, a.thread(messages), []string{"status", "type", "after", "limit"}, 0},
		{"POST", box + "/messages", Write, a.thread(addMessage), []string{"delay"}, outbox.MaxMessageBytes},
		{"POST", box + "/push", Write, a.thread(a.pushEntries), nil, maxLineBytes},
		{"GET", box + "/messages/{message}", Read, a.thread(oneMessage), nil, 0},
		{"GET", box + "/stats", Read, a.thread(outboxStats), nil, 0},
		{"POST", box + "/retry", Admin, asked(a, retryMessages), nil, 0},
	}
}
