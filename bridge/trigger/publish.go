package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/internal/watch"
)

// PublishConfig is what a publisher does: the events that match go to one queue.
type PublishConfig struct {
	Name       string // of the publisher, and of its consumer
	Queue      string
	Adapter    string
	Filter     string            // SQL; "" for every event
	Headers    map[string]string // expressions over the event
	Key        string            // an expression; "" for none
	Body       string            // content: the event's content; event: its JSON form
	Shadow     bool              // log what would be published, publish nothing, and go on
	MaxBatch   int
	RequireTLS bool
}

// NewPublishConfig returns the defaults.
func NewPublishConfig() PublishConfig { return PublishConfig{Body: "content", MaxBatch: 500} }

// publishEnv is what an expression of headers and key sees.
type publishEnv struct {
	ID        int64  `expr:"id"`
	CreatedAt string `expr:"created_at"`
	Source    string `expr:"source"`
	Type      string `expr:"type"`
	Subtype   string `expr:"subtype"`
	Content   string `expr:"content"`
	Message   any    `expr:"message"` // the content when it is JSON, else nil
}

// Validate returns everything that is wrong, nil for nothing.
func (c *PublishConfig) Validate() (problems []Problem) {
	bad := func(key, format string, args ...any) {
		problems = append(problems, Problem{key, fmt.Sprintf(format, args...)})
	}
	if c.Queue == "" {
		bad("queue_name", "queue_name is required")
	}
	if c.Name == "" {
		bad("name", "name is required")
	} else if !nameForm.MatchString(c.Name) {
		bad("name", "name must be letters, digits, dots, hyphens and underscores, at most 100, got %q", c.Name)
	}
	if _, err := filter.Compile(c.Filter); err != nil {
		bad("filter", "filter: %v", err)
	}
	if c.Body != "content" && c.Body != "event" {
		bad("body", "body must be one of [content, event], got %q", c.Body)
	}
	if c.MaxBatch <= 0 || c.MaxBatch > 10000 {
		bad("max_batch", "max_batch must be from 1 to 10000, got %d", c.MaxBatch)
	}
	for _, h := range slices.Sorted(maps.Keys(c.Headers)) {
		if _, err := expr.Compile(c.Headers[h], expr.Env(publishEnv{})); err != nil {
			bad("headers."+h, "headers.%s: %v", h, err)
		}
	}
	if c.Key != "" {
		if _, err := expr.Compile(c.Key, expr.Env(publishEnv{})); err != nil {
			bad("key", "key: %v", err)
		}
	}
	return problems
}

// Publisher sends the events of one consumer to a sink, in their order. Its
// progress moves once the broker has confirmed.
type Publisher struct {
	cfg      PublishConfig
	th       *engine.Thread
	sink     Sink
	log      *slog.Logger
	identity string
	headers  map[string]*vm.Program
	key      *vm.Program

	Published int64 // events that the broker has confirmed to this process
	Shadowed  int64 // events that were logged in shadow mode
	// OnIdle is called when nothing is left to publish. May be nil.
	OnIdle func()
}

// publisherHandler stands where a subscription has a command: nobody starts it,
// since the subscription is paused.
const publisherHandler = "echo 'thread publish run sends these events' >&2; exit 1"

// NewPublisher returns a publisher, and subscribes its consumer, paused: dispatch
// starts no handler for it.
func NewPublisher(ctx context.Context, t *engine.Thread, sink Sink, c PublishConfig, log *slog.Logger) (*Publisher, error) {
	if problems := c.Validate(); problems != nil {
		return nil, &ConfigError{problems}
	}
	id, err := Identity(ctx, t)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Publisher{cfg: c, th: t, sink: sink, identity: id, headers: map[string]*vm.Program{},
		log: slog.New(RedactHandler{log.Handler()}).With("publisher", c.Name, "queue", c.Queue)}
	for h, text := range c.Headers {
		p.headers[h], _ = expr.Compile(text, expr.Env(publishEnv{})) // Validate has tried it
	}
	if c.Key != "" {
		p.key, _ = expr.Compile(c.Key, expr.Env(publishEnv{}))
	}
	s := engine.Subscription{Consumer: c.Name, Handler: publisherHandler, Paused: true}
	if c.Filter != "" {
		s.Filter = &c.Filter
	}
	return p, t.Update(ctx, func(tx *engine.Tx) error {
		err := tx.Replace(c.Name, func(old *engine.Subscription) { old.Handler, old.Filter, old.Paused = s.Handler, s.Filter, true })
		if errors.Is(err, engine.ErrNoSubscription) {
			err = tx.Subscribe(s)
		}
		return err
	})
}

// Run publishes until ctx ends, which is no error, and connects again when the
// broker cannot be reached, except at the start: then it returns a
// *ConnectionError. An event that cannot be turned into a message is one, too.
func (p *Publisher) Run(ctx context.Context) error {
	w, err := watch.New(p.th.Dir())
	if err != nil {
		return err
	}
	defer w.Close()
	after, err := p.connect(ctx)
	if err != nil {
		return &ConnectionError{p.cfg.Queue, err}
	}
	wait := 100 * time.Millisecond
	for ctx.Err() == nil {
		n, err := p.some(ctx, &after)
		switch {
		case err == nil && n == 0:
			if p.OnIdle != nil {
				p.OnIdle()
			}
			if w.Wait(ctx, time.Time{}) != nil {
				return nil
			}
		case err == nil:
			wait = 100 * time.Millisecond
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errMessage), errors.Is(err, engine.ErrCorrupt), errors.Is(err, engine.ErrNoSubscription), errors.Is(err, filter.ErrRuntime):
			return err
		default:
			p.log.Warn("not published, tried again", "error", err, "wait", wait)
			for ctx.Err() == nil {
				if sleep(ctx, wait) != nil {
					return nil
				}
				wait = min(2*wait, 30*time.Second)
				if after, err = p.connect(ctx); err == nil {
					break
				}
				p.log.Warn("not connected, tried again", "error", err, "wait", wait)
			}
		}
	}
	return nil
}

// connect returns the id after which to go on.
func (p *Publisher) connect(ctx context.Context) (int64, error) {
	var after int64
	err := p.th.View(ctx, func(tx *engine.Tx) error {
		at, _, err := tx.Progress(p.cfg.Name)
		after = at.From()
		return err
	})
	if err != nil || p.cfg.Shadow {
		return after, err
	}
	last, err := p.sink.Connect(ctx)
	if last > after {
		p.log.Info("the broker is ahead of the thread", "broker", last, "thread", after)
	}
	return max(last, after), err
}

// some publishes the next events and returns how many there were.
func (p *Publisher) some(ctx context.Context, after *int64) (int, error) {
	page, err := p.th.Pop(ctx, p.cfg.Name, engine.PopQuery{LastAcked: *after, Limit: int64(p.cfg.MaxBatch)})
	if err != nil {
		return 0, err
	}
	var out []Outgoing
	last := *after
	for e, err := range page.Events {
		if err != nil {
			return 0, err
		}
		m, err := p.message(&e)
		if err != nil {
			return 0, fmt.Errorf("%w: event %d: %w", errMessage, e.ID, err)
		}
		out = append(out, m)
		last = e.ID
	}
	if len(out) == 0 {
		return 0, nil
	}
	if p.cfg.Shadow {
		for _, m := range out {
			p.log.Info("shadow: would publish", "event", m.Event, "key", m.Key, "headers", m.Headers, "bytes", len(m.Body))
		}
		p.Shadowed += int64(len(out))
	} else {
		if err := p.sink.Publish(ctx, out); err != nil {
			return 0, err
		}
		p.Published += int64(len(out))
		p.log.Info("published", "first", out[0].Event, "last", last, "events", len(out))
	}
	*after = last
	return len(out), p.th.Ack(ctx, p.cfg.Name, last)
}

var errMessage = errors.New("cannot be published")

func (p *Publisher) message(e *event.Event) (Outgoing, error) {
	m := Outgoing{Event: e.ID, ID: p.identity + ":" + strconv.FormatInt(e.ID, 10), Queue: p.cfg.Queue, Headers: map[string]string{}, Body: []byte(e.Content)}
	if p.cfg.Body == "event" {
		m.Body = e.AppendJSON(nil)
	}
	m.Headers[HeaderMessageID], m.Headers[HeaderEventName] = m.ID, e.Type
	env := publishEnv{ID: e.ID, CreatedAt: e.CreatedAt, Source: e.Source, Type: e.Type, Content: e.Content}
	if e.Subtype != nil {
		env.Subtype = *e.Subtype
	}
	if json.Unmarshal([]byte(e.Content), &env.Message) != nil {
		env.Message = nil
	}
	for _, h := range slices.Sorted(maps.Keys(p.headers)) {
		v, err := expr.Run(p.headers[h], env)
		if err != nil {
			return m, fmt.Errorf("headers.%s: %w", h, err)
		}
		if v != nil {
			m.Headers[h] = fmt.Sprint(v)
		}
	}
	if p.key != nil {
		v, err := expr.Run(p.key, env)
		if err != nil {
			return m, fmt.Errorf("key: %w", err)
		}
		if v != nil {
			m.Key = fmt.Sprint(v)
		}
	}
	return m, nil
}
