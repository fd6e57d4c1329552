package mqtt

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// source reads a filter in a session that the broker keeps while we are away. A
// message with QoS 2 has its packet id as position, which the transaction of the
// intake stores with its event.
type source struct {
	s   *adapter.Settings
	id  string // client id
	log *slog.Logger
	run string // names the messages of this process that have no id
	// pause is how long to wait before a lost connection is made again; it doubles.
	pause time.Duration
	// lasting is when a connection has lasted: two clients of one name throw each
	// other out at once, again and again.
	lasting time.Duration

	mu      sync.Mutex
	state   trigger.State
	life    context.Context // from Connect to Close
	end     context.CancelFunc
	gone    sync.WaitGroup
	link    *link
	session string
	queue   []trigger.Message
	unsafe  int // messages with QoS 0 in queue
	dropped int // messages with QoS 0 that found no room
	more    chan struct{}
	unacked map[uint16]unacked
	last    error
	count   int64
	sys     chan *paho.Publish // what the broker says of itself, for Warnings
}

// link is one connection.
type link struct {
	client   *paho.Client
	wire     *wire
	order    []*delivery // not acknowledged, as they came
	releases []uint16
	released chan struct{} // holds one when there are releases
	largest  uint32        // packet that the broker takes, 0: no bound
	lost     chan error    // holds why it ended
}

func (l *link) write(b []byte) error {
	l.wire.Lock()
	_, err := l.wire.Write(b)
	l.wire.Unlock()
	if err != nil {
		_ = l.wire.Close() // paho sees it, and the connection ends
	}
	return err
}

func (l *link) noteLost(err error) {
	select {
	case l.lost <- err:
	default: // the first one is the reason
	}
}

// why returns the reason of the end, which paho tells a little later.
func (l *link) why() error {
	select {
	case err := <-l.lost:
		return err
	case <-time.After(time.Second):
		return errNotConnected
	}
}

func newSource(s *adapter.Settings) *source {
	k := &source{s: s, id: s.Text("client_id"), log: s.Log, more: make(chan struct{}, 1), pause: 100 * time.Millisecond, lasting: 10 * time.Second}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	k.run = random()
	if k.id == "" {
		k.id = s.Group + "-" + s.Name
		if s.Bool("shared") { // one of several
			k.id += "-" + strings.TrimPrefix(s.Instance, "thread-")
		}
	}
	if k.trial() {
		k.id = "thread-trial-" + random()
	}
	return k
}

func random() string {
	b := make([]byte, 4)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// trial reports whether nothing is to be taken: then the session of the real trigger
// must not be touched, which may be running.
func (k *source) trial() bool { return k.s.Instance == "" }

// Connect implements trigger.Source.
func (k *source) Connect(ctx context.Context, st trigger.State) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	k.mu.Lock()
	k.state, k.life, k.end, k.session, k.queue, k.unsafe, k.last = st, life, end, "", nil, 0, nil
	k.mu.Unlock()
	l, err := k.connect(ctx)
	if err != nil {
		return err
	}
	k.gone.Go(func() { k.maintain(life, l) })
	return nil
}

// connect makes a connection and subscribes.
func (k *source) connect(ctx context.Context) (*link, error) {
	l := &link{released: make(chan struct{}, 1), lost: make(chan error, 1)}
	o := client{id: k.id, expiry: math.MaxUint32, receive: uint16(k.s.Int("receive_maximum")), session: newManager(k, l), publish: k.unsafePublish, lost: l.noteLost}
	if d := k.s.Duration("session_expiry"); d > 0 {
		o.expiry = uint32(min(d/time.Second, math.MaxUint32-1))
	}
	qos := byte(k.s.Int("qos"))
	if k.trial() {
		o.clean, o.expiry, qos = true, 0, 0
	}
	c, _, ack, err := connect(ctx, k.s, o)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	l.client = c
	if p := ack.Properties; p != nil && p.MaximumPacketSize != nil {
		l.largest = *p.MaximumPacketSize
	}
	k.mu.Unlock()
	if p := ack.Properties; p != nil && p.SessionExpiryInterval != nil && *p.SessionExpiryInterval < o.expiry {
		k.log.Warn("the broker keeps the session for a shorter time than asked for", "seconds", *p.SessionExpiryInterval)
	}
	if err := k.subscribe(ctx, c, qos); err != nil {
		disconnect(c)
		return nil, err
	}
	k.note(nil)
	return l, nil
}

func (k *source) subscribe(ctx context.Context, c *paho.Client, qos byte) error {
	// What is retained comes once: a subscription that is there is not a new one.
	o := paho.SubscribeOptions{Topic: k.s.Queue, QoS: qos, RetainHandling: 1, RetainAsPublished: true}
	if !k.s.Bool("retained") {
		o.RetainHandling = 2
	}
	if k.s.Bool("shared") && !k.trial() {
		o.Topic, o.RetainHandling = "$share/"+k.s.Group+"/"+k.s.Queue, 0
	} else {
		o.NoLocal = true // dead letters that match the filter
	}
	ctx, cancel := during(ctx, c)
	defer cancel()
	ack, err := c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{o}})
	if ack != nil && len(ack.Reasons) == 1 {
		switch code := ack.Reasons[0]; {
		case code >= 0x80:
			return fmt.Errorf("the broker refuses to subscribe to %s: %s", o.Topic, (&packets.Suback{Reasons: []byte{code}}).Reason(0))
		case code < qos:
			return fmt.Errorf("the broker grants QoS %d for %s: set adapter.connection.qos", code, o.Topic)
		}
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// maintain connects again when a connection is lost, until Close.
func (k *source) maintain(ctx context.Context, l *link) {
	short := 0 // connections in a row that did not last
	for {
		begun := time.Now()
		var gone sync.WaitGroup
		gone.Go(func() { k.releaser(ctx, l) })
		select {
		case <-ctx.Done():
			disconnect(l.client)
			gone.Wait()
			return
		case <-l.client.Done():
		}
		gone.Wait()
		last := l.why()
		if short++; time.Since(begun) > k.lasting {
			short = 1
		}
		if short > 3 { // Mosquitto 2.0 closes without a reason
			last = fmt.Errorf("%w, for the %dth time in a row: %w", last, short, errTakenOver)
		}
		k.mu.Lock()
		k.link, k.last = nil, last
		k.mu.Unlock()
		k.log.Warn("connection lost, connecting again", "error", last)
		wait := min(k.pause<<min(short-1, 16), 30*time.Second)
		for l = nil; l == nil; wait = min(2*wait, 30*time.Second) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			var err error
			if l, err = k.connect(ctx); err != nil && ctx.Err() == nil {
				k.note(err)
				k.log.Warn("not connected, tried again", "error", err, "wait", wait)
			}
		}
		k.log.Info("connected again")
	}
}

// note keeps what is wrong for Health.
func (k *source) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = err
}

// tell wakes Consume.
func (k *source) tell() {
	select {
	case k.more <- struct{}{}:
	default:
	}
}

// Consume implements trigger.Source.
func (k *source) Consume(ctx context.Context, most int) ([]trigger.Message, error) {
	for {
		k.mu.Lock()
		if k.life == nil {
			k.mu.Unlock()
			return nil, errNotConnected
		}
		if n := min(most, len(k.queue)); n > 0 {
			ms := slices.Clone(k.queue[:n])
			k.queue = slices.Delete(k.queue, 0, n)
			for i := range ms {
				if ms[i].Handle == nil {
					k.unsafe--
				}
			}
			k.mu.Unlock()
			return ms, nil
		}
		life := k.life
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-life.Done():
			return nil, errNotConnected
		case <-k.more:
		}
	}
}

// named is a message, and whether its producer gave it an id.
type named struct {
	trigger.Message
	named bool
}

// message makes a message of a packet. k.mu is held.
func (k *source) message(p *packets.Publish) named {
	m := named{Message: trigger.Message{Body: p.Payload, Key: p.Topic, Headers: map[string]string{}}}
	if q := p.Properties; q != nil {
		for _, u := range q.User {
			if v, ok := m.Headers[u.Key]; ok {
				u.Value = v + "," + u.Value
			}
			m.Headers[u.Key] = u.Value
		}
		for name, v := range map[string]string{"content-type": q.ContentType, "response-topic": q.ResponseTopic, "correlation-data": string(q.CorrelationData)} {
			if v != "" && m.Headers[name] == "" {
				m.Headers[name] = v
			}
		}
	}
	m.Headers["mqtt-topic"] = p.Topic
	if p.Retain {
		m.Headers["mqtt-retain"] = "true"
	}
	if m.ID = trigger.Header(m.Headers, trigger.HeaderMessageID); m.ID != "" {
		m.named = true
		return m
	}
	k.count++
	m.ID = fmt.Sprintf("%s:%s:%d", p.Topic, k.run, k.count)
	return m
}

// maxUnsafe bounds the messages with QoS 0 that wait here: there is no way to ask
// the broker to wait with them.
const maxUnsafe = 10000

// unsafePublish takes a message with QoS 0.
func (k *source) unsafePublish(p *paho.Publish) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if strings.HasPrefix(p.Topic, "$SYS/broker/") && k.sys != nil {
		select {
		case k.sys <- p:
		default:
		}
		return
	}
	if k.unsafe >= maxUnsafe {
		if k.dropped++; k.dropped&(k.dropped-1) == 0 {
			k.log.Warn("messages with QoS 0 are dropped: they come faster than they are stored", "dropped", k.dropped)
		}
		return
	}
	m := k.message(p.Packet())
	m.Unnamed = !m.named
	k.unsafe++
	k.queue = append(k.queue, m.Message)
	k.tell()
}

// Health implements trigger.Source.
func (k *source) Health(context.Context) trigger.Health {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.last != nil:
		return trigger.Health{Detail: k.last.Error()}
	case k.link == nil:
		return trigger.Health{Detail: errNotConnected.Error()}
	}
	return trigger.Health{OK: true}
}

// Lag implements trigger.Source.
func (k *source) Lag(context.Context) (int64, error) { return 0, trigger.ErrNotKnown }

// Capabilities implements trigger.Source.
func (k *source) Capabilities() trigger.Caps {
	c := caps
	c.MaxOut = k.s.Int("receive_maximum")
	return c
}

// Close implements trigger.Source. Acknowledgements are written when they are asked
// for, so that none is lost by it (eclipse/paho.golang#327).
func (k *source) Close() error {
	k.mu.Lock()
	end := k.end
	k.link, k.life, k.end = nil, nil, nil
	k.mu.Unlock()
	if end != nil {
		end()
	}
	k.gone.Wait()
	return nil
}
