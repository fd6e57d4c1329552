package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"thread/bridge/internal/expression"
	"thread/engine"
	"thread/event"
	"thread/filter"
)

// PublishConfig is what a publisher does: the events that match go to one queue.
type PublishConfig struct {
	Name     string // of the publisher, and of its consumer
	Queue    string
	Adapter  string
	Filter   string            // SQL; "" for every event
	Headers  map[string]string // expressions over the event
	Key      string            // an expression; "" for none
	Body     string            // content: the event's content; event: its JSON form
	Shadow   bool              // log what would be published, publish nothing, and continue
	MaxBatch int
	// PruneAfter is after how many confirmed events the thread drops what every
	// consumer is through with, 0: never.
	PruneAfter int64
	RequireTLS bool
}

// NewPublishConfig returns the defaults.
func NewPublishConfig() PublishConfig { return PublishConfig{Body: "content", MaxBatch: 500} }

// publishEnv is what an expression of headers and key sees. Message is the content when
// it is JSON, else nil.
type publishEnv struct {
	ID        int64  `expr:"id"`
	CreatedAt string `expr:"created_at"`
	Source    string `expr:"source"`
	Type      string `expr:"type"`
	Subtype   string `expr:"subtype"`
	Content   string `expr:"content"`
	Message   any    `expr:"message"`
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
	if c.PruneAfter < 0 {
		bad("prune_after", "prune_after must be non-negative, got %d", c.PruneAfter)
	}
	for _, h := range slices.Sorted(maps.Keys(c.Headers)) {
		if _, err := expression.Compile(c.Headers[h], publishEnv{}); err != nil {
			bad("headers."+h, "headers.%s: %v", h, err)
		}
	}
	if c.Key != "" {
		if _, err := expression.Compile(c.Key, publishEnv{}); err != nil {
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
	headers  map[string]*expression.Program
	key      *expression.Program

	confirmed int64 // since the latest prune

	Published int64 // events that the broker has confirmed to this process
	Shadowed  int64 // events that were logged in shadow mode
	// OnIdle is called when nothing is left to publish. May be nil.
	OnIdle func()
	// Trace is called with each event. It returns the header traceparent of its message, and
	// what to call once the broker has confirmed. May be nil.
	Trace func(e *event.Event) (traceparent string, confirmed func())

	mu    sync.Mutex
	state publishState
}

// publisherHandler stands where a subscription has a command: no process starts it,
// since the subscription is paused.
const publisherHandler = "echo 'thread publish run sends these events' >&2; exit 1"

// newPublisher returns a publisher that only makes messages.
func newPublisher(c PublishConfig) (*Publisher, error) {
	if problems := c.Validate(); problems != nil {
		return nil, &ConfigError{problems}
	}
	p := &Publisher{cfg: c, headers: map[string]*expression.Program{}}
	for h, text := range c.Headers {
		p.headers[h], _ = expression.Compile(text, publishEnv{}) // Validate has tried it
	}
	if c.Key != "" {
		p.key, _ = expression.Compile(c.Key, publishEnv{})
	}
	return p, nil
}

// NewPublisher returns a publisher, and subscribes its consumer, paused: dispatch
// starts no handler for it. It returns ErrForeignConsumer for a consumer that no
// publisher has subscribed.
func NewPublisher(ctx context.Context, t *engine.Thread, sink Sink, c PublishConfig, log *slog.Logger) (*Publisher, error) {
	p, err := newPublisher(c)
	if err != nil {
		return nil, err
	}
	if p.identity, err = Identity(ctx, t); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p.th, p.sink, p.log = t, sink, slog.New(RedactHandler{log.Handler()}).With("publisher", c.Name, "queue", c.Queue)
	s := engine.Subscription{Consumer: c.Name, Handler: publisherHandler, Paused: true}
	if c.Filter != "" {
		s.Filter = &c.Filter
	}
	return p, t.Update(ctx, func(tx *engine.Tx) error { return subscribePublisher(tx, s) })
}

// Run publishes until ctx ends, which is not an error, and connects again when the
// broker cannot be reached, except at the start: then it returns a
// *ConnectionError. An event that cannot be turned into a message is one, too.
func (p *Publisher) Run(ctx context.Context) error {
	w, err := p.th.Watch()
	if err != nil {
		return err
	}
	defer w.Close()
	after, err := p.connect(ctx)
	if err != nil {
		return &ConnectionError{p.cfg.Queue, err}
	}
	p.log.Info("started", "after", after)
	p.note(func(s *publishState) { s.running, s.position, s.wrong = true, after, wrong{} })
	defer p.note(func(s *publishState) { s.running = false })
	wait := 100 * time.Millisecond
	for ctx.Err() == nil {
		p.note(func(s *publishState) { s.beat = time.Now() })
		n, err := p.some(ctx, &after)
		if err == nil {
			p.note(func(s *publishState) { s.wrong = wrong{} })
		}
		switch {
		case err == nil && n == 0:
			if p.OnIdle != nil {
				p.OnIdle()
			}
			if w.Wait(ctx, time.Now().Add(idleBeat)) != nil {
				return nil
			}
		case err == nil:
			wait = 100 * time.Millisecond
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errMessage), errors.Is(err, engine.ErrCorrupt), errors.Is(err, engine.ErrNoSubscription), errors.Is(err, filter.ErrRuntime):
			return err
		default:
			p.noteTrouble(err)
			p.log.Warn("not published, tried again", "error", err, "wait", wait)
			for ctx.Err() == nil {
				if sleep(ctx, wait) != nil {
					return nil
				}
				wait = min(2*wait, 30*time.Second)
				if after, err = p.connect(ctx); err == nil {
					break
				}
				p.noteTrouble(err)
				p.log.Warn("not connected, tried again", "error", err, "wait", wait)
			}
		}
	}
	return nil
}

// connect returns the id after which to continue.
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
	var traced []func()
	last := *after
	for e, err := range page.Events {
		if err != nil {
			return 0, err
		}
		m, err := p.message(&e)
		if err != nil {
			return 0, fmt.Errorf("%w: event %d: %w", errMessage, e.ID, err)
		}
		if p.Trace != nil && !p.cfg.Shadow {
			maps.DeleteFunc(m.Headers, func(name, _ string) bool { return strings.EqualFold(name, headerTrace) })
			own, confirmed := p.Trace(&e)
			m.Headers[headerTrace], traced = own, append(traced, confirmed)
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
		for _, confirmed := range traced {
			confirmed()
		}
		p.Published += int64(len(out))
		p.log.Info("published", "first", out[0].Event, "last", last, "events", len(out))
	}
	*after = last
	p.note(func(s *publishState) { s.published, s.shadowed, s.position = p.Published, p.Shadowed, last })
	err = p.th.Ack(ctx, p.cfg.Name, last)
	if p.confirmed += int64(len(out)); err == nil && p.cfg.PruneAfter > 0 && p.confirmed >= p.cfg.PruneAfter {
		p.prune(ctx)
	}
	return len(out), err
}

// prune drops what every consumer is through with, so that the directory stays as
// small as what waits. When that cannot be done, it is done later.
func (p *Publisher) prune(ctx context.Context) {
	p.confirmed = 0
	c, err := p.th.Prune(ctx, engine.Retention{Acked: true})
	if err != nil {
		p.log.Warn("nothing was pruned, tried again later", "error", err)
	} else {
		p.log.Info("pruned", "events", c.Dropped, "through", c.Through, "bytes", c.Size)
	}
}

// PreviewPublish calls show with the messages that a publisher would send next, at
// most limit of them (0: all), and bad with those that it could not make. It stores
// nothing and connects to nothing.
func PreviewPublish(ctx context.Context, t *engine.Thread, c PublishConfig, limit int, show func(Outgoing) error, bad func(id int64, err error)) error {
	p, err := newPublisher(c)
	if err != nil {
		return err
	}
	q := engine.Query{Filter: c.Filter, Limit: int64(limit)}
	err = t.View(ctx, func(tx *engine.Tx) error {
		at, _, err := tx.Progress(c.Name)
		q.After = at.From()
		return errors.Join(err, findIdentity(&p.identity)(tx))
	})
	if err != nil {
		return err
	}
	if p.identity == "" {
		p.identity = strings.Repeat("0", 32) // it gets one when it publishes
	}
	for e, err := range t.Events(ctx, q) {
		if err != nil {
			return err
		}
		m, err := p.message(&e)
		if err != nil {
			bad(e.ID, err)
		} else if err := show(m); err != nil {
			return err
		}
	}
	return nil
}

var errMessage = errors.New("cannot be published")

func (p *Publisher) message(e *event.Event) (Outgoing, error) {
	m := Outgoing{Event: e.ID, ID: p.identity + ":" + strconv.FormatInt(e.ID, 10), Queue: p.cfg.Queue, Headers: map[string]string{}, Body: []byte(e.Content)}
	if p.cfg.Body == "event" {
		m.Body = e.AppendJSON(nil)
	}
	m.Headers[HeaderMessageID], m.Headers[HeaderEventName] = m.ID, e.Type
	if len(p.headers) == 0 && p.key == nil {
		return m, nil
	}
	vars := publishEnv{ID: e.ID, CreatedAt: e.CreatedAt, Source: e.Source, Type: e.Type, Content: e.Content}
	if e.Subtype != nil {
		vars.Subtype = *e.Subtype
	}
	if message, err := expression.JSON([]byte(e.Content)); err == nil {
		vars.Message = message
	}
	text := func(program *expression.Program) (string, bool, error) {
		v, err := program.Run(vars)
		if err != nil || v == nil {
			return "", false, err
		}
		return expression.String(v), true, nil
	}
	for _, h := range slices.Sorted(maps.Keys(p.headers)) {
		v, ok, err := text(p.headers[h])
		if err != nil {
			return m, fmt.Errorf("headers.%s: %w", h, err)
		}
		if ok {
			m.Headers[h] = v
		}
	}
	if p.key != nil {
		var err error
		if m.Key, _, err = text(p.key); err != nil {
			return m, fmt.Errorf("key: %w", err)
		}
	}
	return m, nil
}
