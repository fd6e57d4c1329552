package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"time"

	"thread/internal/dispatch"
	"thread/internal/lanes"
	"thread/lane"
)

// maxDeliveries bounds how many deliveries a handler may ask for at once: more than one
// consume has out.
const maxDeliveries = 2000

// serveTurns answers a handler until its connection ends. d has read its first request.
func (t *thread) serveTurns(conn net.Conn, bound *io.LimitedReader, d *json.Decoder, q Request) {
	s, err := t.newTurns(conn, q)
	var a Answer
	if err != nil {
		a.Error = err.Error()
	}
	writeAnswer(conn, a)
	if err != nil {
		return
	}
	conn.SetDeadline(time.Time{})
	ctx, cancel := context.WithCancel(t.s.waiting)
	defer cancel()
	s.open = ctx
	stop := context.AfterFunc(t.s.waiting, func() { s.send(dispatch.TurnAnswer{Error: dispatch.ErrEnding.Error()}) })
	defer stop()
	s.run.setTurns(s)
	for {
		bound.N = maxRequestBytes
		var r dispatch.TurnRequest
		if d.Decode(&r) != nil {
			return
		}
		switch {
		case r.Ask > 0:
			s.ask(&r)
		case r.End > 0:
			s.end(&r)
		}
	}
}

var (
	errNotRun   = errors.New("the server runs no such handler")
	errTooMany  = errors.New("too many deliveries")
	errRepeated = errors.New("this number is taken")
)

// The states of a consumer, as users see them.
const (
	stateQueued  = "queued"
	stateRunning = "running"
	stateWaiting = "waiting" // for a retry
)

// newTurns returns the turns of the consumer's run, which has to be the one that asks: a
// run that was taken over from a killed server has no id here.
func (t *thread) newTurns(conn net.Conn, q Request) (*turns, error) {
	t.mu.Lock()
	c := t.consumers[q.Consumer]
	var r *run
	var s *turns
	if c != nil && c.run != nil && c.state == stateRunning {
		r = c.run
		s = &turns{t: t, run: r, name: c.name, lane: c.lane, warn: c.warn, conn: conn, deliveries: map[int64]*delivery{}}
	}
	t.mu.Unlock()
	if r == nil {
		return nil, errNotRun
	}
	if id, _ := r.started(); id != "" && id != q.RunID {
		return nil, errNotRun
	}
	r.leaveLane()
	return s, nil
}

func (s *turns) send(a dispatch.TurnAnswer) {
	text, err := json.Marshal(a)
	if err != nil {
		return
	}
	s.out.Lock()
	defer s.out.Unlock()
	s.conn.SetWriteDeadline(time.Now().Add(requestTime))
	if _, err := s.conn.Write(append(text, '\n')); err != nil {
		s.conn.Close()
	}
}

// ask queues a delivery.
func (s *turns) ask(r *dispatch.TurnRequest) {
	d := &delivery{of: s, number: r.Ask, event: r.Event, asked: time.Now(), since: time.Now(), state: stateQueued,
		dir: dispatch.DeliveryDir(s.t.place, s.name, r.Slot), over: make(chan struct{})}
	path := lane.Lane(s.lane)
	if r.Key != nil {
		key := sessionKey(*r.Key)
		d.key, path = &key, lane.Session(s.t.keyLane(key), s.lane)
	}
	s.mu.Lock()
	err := errTooMany
	if s.deliveries[d.number] != nil {
		err = errRepeated
	} else if len(s.deliveries) < maxDeliveries {
		err = nil
		s.deliveries[d.number] = d
	}
	s.mu.Unlock()
	if err != nil { // no process that follows the protocol
		s.t.s.repeats.say(slog.LevelWarn, "turn refused", "thread", s.t.dir, "consumer", s.name, "error", err)
		s.conn.Close()
		return
	}
	ctx, refuse := context.WithCancel(s.open)
	d.refuse = refuse
	task, err := s.t.s.queue.Submit(ctx, path, func(context.Context) error { return d.carryOut() }, warnAfter(s.warn)...)
	if err == nil {
		context.AfterFunc(ctx, func() { // one that never had its turn is forgotten
			if refused := (*lane.RefusedError)(nil); errors.As(task.Err(), &refused) {
				s.forget(d)
			}
		})
		return
	}
	refuse()
	s.forget(d)
	s.send(dispatch.TurnAnswer{Error: dispatch.ErrEnding.Error()})
}

func warnAfter(d *time.Duration) []lane.Option {
	if d == nil {
		return nil
	}
	return []lane.Option{lane.WarnAfter(*d)}
}

func (s *turns) forget(d *delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.deliveries, d.number)
}

// carryOut is the delivery's turn.
func (d *delivery) carryOut() error {
	s := d.of
	defer d.refuse()
	defer s.forget(d)
	s.mu.Lock()
	d.state, d.since = stateRunning, time.Now()
	begun := d.since
	s.mu.Unlock()
	var handle *lane.Run
	if d.key != nil {
		session := s.t.delivery(s.name, *d.key)
		handle = d.handle()
		s.t.s.runs.Register(session, handle)
		defer s.t.s.runs.Clear(session, handle)
	}
	s.send(dispatch.TurnAnswer{Turn: d.number})
	select {
	case <-d.over:
	case <-s.run.over:
	}
	var err error
	if d.failure != "" {
		err = errors.New(d.failure)
	}
	s.t.s.stats.ended(lane.GlobalLane(s.lane), err == nil, begun.Sub(d.asked), time.Since(begun))
	return err
}

// end is called when a delivery has ended, or not wanted any more.
func (s *turns) end(r *dispatch.TurnRequest) {
	s.mu.Lock()
	d := s.deliveries[r.End]
	delete(s.deliveries, r.End)
	s.mu.Unlock()
	if d == nil {
		return
	}
	d.failure = r.Error
	close(d.over)
	d.refuse()
}

// handle is what the registry knows of the delivery.
func (d *delivery) handle() *lane.Run {
	return &lane.Run{
		Deliver:    d.deliver,
		Abort:      func() { d.of.send(dispatch.TurnAnswer{Abort: d.number}) },
		Streaming:  func() bool { w := wordIn(d.dir); return w == wordStreaming || w == wordCompacting },
		Compacting: func() bool { return wordIn(d.dir) == wordCompacting },
	}
}

// list returns the deliveries, in the order in which they were asked for.
func (s *turns) list() []Run {
	s.mu.Lock()
	list := make([]Run, 0, len(s.deliveries))
	dirs := make([]string, 0, len(s.deliveries))
	for _, d := range s.deliveries {
		list = append(list, Run{Consumer: s.name, State: d.state, Lane: lane.GlobalLane(s.lane), Since: d.since, Event: d.event, Key: d.key})
		dirs = append(dirs, d.dir)
	}
	s.mu.Unlock()
	for i := range list {
		if w := wordIn(dirs[i]); list[i].State == stateRunning && (w == wordStreaming || w == wordCompacting) {
			list[i].Activity = w
		}
	}
	return list
}

// keyLane returns the session lane of a key, which the consumers of the thread share and
// no other thread has.
func (t *thread) keyLane(key string) string { return lanes.Scoped(lanes.Session(key), "key "+t.dir) }

// delivery is under what the registry has the delivery of a consumer with the key.
func (t *thread) delivery(consumer, key string) string { return t.keyLane(key) + "\x00" + consumer }
