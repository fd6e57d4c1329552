package mqtt

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"pgregory.net/rapid"

	"thread/bridge/trigger"
	"thread/engine"
	"thread/internal/watch"
)

// model is a broker that keeps to the protocol, with few packet ids, so that they
// are used again soon, and that drops the connection, or loses the session, where a
// test wants it to.
type model struct {
	l   net.Listener
	ids uint16

	mu      sync.Mutex
	present bool   // there is a session
	waiting []sent // not given out
	out     []*flight
	lastID  uint16
	conn    net.Conn
	left    int   // packets until the connection is dropped; below 0: never
	drops   []int // left of the connections to come
	gone    map[int]bool
	broken  string
	changed chan struct{}
}

// sent is a message: its number, from 1, its body and QoS.
type sent struct {
	n    int
	body string
	qos  byte
}

type flight struct {
	sent
	id       uint16
	dup      bool
	released bool // PUBREC came
}

func newModel(t testing.TB, ids uint16) *model {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &model{l: l, ids: ids, left: -1, gone: map[int]bool{}, changed: make(chan struct{})}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			m.serve(c)
		}
	}()
	return m
}

// step counts a packet and reports whether the connection is still there. m.mu is held.
func (m *model) step(c net.Conn) bool {
	if m.left == 0 {
		c.Close()
		return false
	}
	m.left--
	return true
}

func (m *model) change() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *model) serve(c net.Conn) {
	defer c.Close()
	p, err := packets.ReadPacket(c)
	if err != nil {
		return
	}
	if _, ok := p.Content.(*packets.Connect); !ok {
		return
	}
	m.mu.Lock()
	if m.conn != nil {
		m.conn.Close() // the session is taken over
	}
	m.conn, m.left = c, -1
	if len(m.drops) > 0 {
		m.left, m.drops = m.drops[0], m.drops[1:]
	}
	ack := &packets.Connack{SessionPresent: m.present, Properties: &packets.Properties{}}
	if !m.present {
		for _, f := range m.out {
			m.gone[f.n] = true
		}
		m.out = nil
	}
	m.present = true
	_, _ = ack.WriteTo(c)
	for _, f := range m.out {
		if f.released {
			m.write(c, &packets.Pubrel{PacketID: f.id, Properties: &packets.Properties{}})
		} else {
			m.publish(c, f)
		}
	}
	m.mu.Unlock()
	m.push(c)
	for {
		p, err := packets.ReadPacket(c)
		if err != nil {
			return
		}
		m.mu.Lock()
		if m.conn == c && m.step(c) {
			m.handle(c, p)
		}
		m.mu.Unlock()
		m.push(c)
	}
}

func (m *model) write(c net.Conn, p io.WriterTo) {
	if m.step(c) {
		_, _ = p.WriteTo(c) // it may be gone
	}
}

func (m *model) publish(c net.Conn, f *flight) {
	m.write(c, &packets.Publish{Topic: "t", QoS: f.qos, PacketID: f.id, Duplicate: f.dup, Payload: []byte(f.body), Properties: &packets.Properties{}})
	f.dup = true
}

// push gives out what waits.
func (m *model) push(c net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.conn == c && len(m.waiting) > 0 && len(m.out) < int(m.ids) {
		used := map[uint16]bool{}
		for _, f := range m.out {
			used[f.id] = true
		}
		for ok := true; ok; ok = used[m.lastID] {
			m.lastID = m.lastID%m.ids + 1
		}
		f := &flight{sent: m.waiting[0], id: m.lastID}
		m.waiting = m.waiting[1:]
		m.out = append(m.out, f)
		m.publish(c, f)
	}
}

func (m *model) handle(c net.Conn, p *packets.ControlPacket) {
	find := func(id uint16) int {
		for i, f := range m.out {
			if f.id == id {
				return i
			}
		}
		m.broken = fmt.Sprintf("%s for packet id %d, which is not out", p.PacketType(), id)
		return -1
	}
	switch a := p.Content.(type) {
	case *packets.Subscribe:
		ok := packets.NewControlPacket(packets.SUBACK)
		ok.Content.(*packets.Suback).PacketID, ok.Content.(*packets.Suback).Reasons = a.PacketID, []byte{2}
		m.write(c, ok)
	case *packets.Puback:
		if i := find(a.PacketID); i >= 0 {
			m.out = append(m.out[:i:i], m.out[i+1:]...)
		}
	case *packets.Pubrec:
		if i := find(a.PacketID); i >= 0 {
			m.out[i].released = true
			m.write(c, &packets.Pubrel{PacketID: a.PacketID, Properties: &packets.Properties{}})
		}
	case *packets.Pubcomp:
		if i := find(a.PacketID); i >= 0 {
			if !m.out[i].released {
				m.broken = "PUBCOMP before PUBREL"
			}
			m.out = append(m.out[:i:i], m.out[i+1:]...)
		}
	case *packets.Disconnect:
		c.Close()
	}
	m.change()
}

func (m *model) send(s sent) {
	m.mu.Lock()
	m.waiting = append(m.waiting, s)
	c := m.conn
	m.mu.Unlock()
	if c != nil {
		m.push(c)
	}
}

// cut ends the connection, and loses the session when asked to.
func (m *model) cut(lose bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if lose {
		m.present = false
	}
	if m.conn != nil {
		m.conn.Close()
	}
}

// idle waits until everything was delivered.
func (m *model) idle(t interface{ Fatalf(string, ...any) }) {
	end := time.After(time.Minute)
	for {
		m.mu.Lock()
		done, changed := len(m.waiting)+len(m.out) == 0, m.changed
		m.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-end:
			m.mu.Lock()
			t.Fatalf("not delivered: %d wait, %d are out; %s", len(m.waiting), len(m.out), m.broken)
		}
	}
}

// TestModel: whatever is dropped where, messages with QoS 2 are stored once, also when
// some have the same body, and packet ids are used again at once; only what was out
// when the broker lost the session may be missing, and is never there twice. With QoS
// 1 they are stored at least once.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ctx := context.Background()
		m := newModel(t, uint16(rapid.IntRange(1, 6).Draw(rt, "ids")))
		defer m.l.Close()
		m.drops = rapid.SliceOfN(rapid.IntRange(0, 25), 0, 6).Draw(rt, "drops")
		handled := rapid.Bool().Draw(rt, "handled")
		th, err := engine.Init(t.TempDir() + "/t")
		if err != nil {
			rt.Fatal(err)
		}
		defer th.Close()
		s := settings("mqtt://"+m.l.Addr().String(), "t")
		s.Connection["receive_maximum"] = "3"
		start := func() *trigger.Trigger {
			for {
				src := newSource(s)
				src.pause, src.lasting = time.Millisecond, 0
				c := trigger.NewConfig()
				c.Name, c.Queue, c.Group, c.Adapter, c.MaxBatch, c.Parser = "m", "t", "g", "mqtt", 4, "text"
				if handled {
					c.Settle, c.Consumer = trigger.SettleHandled, "m"
				}
				tr, err := trigger.New(th, src, c, trigger.Options{Drain: time.Millisecond})
				if err != nil {
					rt.Fatal(err)
				}
				if tr.Start(ctx) == nil {
					return tr
				} // else the connection was dropped: the next one is
			}
		}
		if handled {
			if err := th.Subscribe(ctx, engine.Subscription{Consumer: "m", Handler: "true"}); err != nil {
				rt.Fatal(err)
			}
			life, stop := context.WithCancel(ctx)
			var gone sync.WaitGroup
			gone.Go(func() { handle(life, th) })
			defer gone.Wait()
			defer stop()
		}
		tr := start()
		var all []sent
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"2", "2", "2", "same", "same", "1", "cut", "restart", "lose"}).Draw(rt, "step") {
			case "2":
				all = append(all, sent{len(all) + 1, fmt.Sprintf("b%d", len(all)+1), 2})
				m.send(all[len(all)-1])
			case "same":
				all = append(all, sent{len(all) + 1, "same", 2})
				m.send(all[len(all)-1])
			case "1":
				all = append(all, sent{len(all) + 1, fmt.Sprintf("b%d", len(all)+1), 1})
				m.send(all[len(all)-1])
			case "cut":
				m.cut(false)
			case "lose":
				m.cut(true)
			case "restart":
				m.cut(false)
				if err := tr.Stop(); err != nil {
					rt.Fatal(err)
				}
				tr = start()
			}
		}
		m.idle(rt)
		if err := tr.Stop(); err != nil {
			rt.Fatal(err)
		}
		m.check(rt, th, all)
	})
}

// check counts what is stored. m is idle.
func (m *model) check(rt *rapid.T, th *engine.Thread, all []sent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != "" {
		rt.Fatalf("the protocol was broken: %s", m.broken)
	}
	got := map[string]int{}
	for e, err := range th.Events(context.Background(), engine.Query{}) {
		if err != nil {
			rt.Fatal(err)
		}
		var c struct{ Message string }
		if err := json.Unmarshal([]byte(e.Content), &c); err != nil {
			rt.Fatal(err)
		}
		got[c.Message]++
	}
	type bound struct{ least, most int }
	want := map[string]bound{}
	for _, s := range all {
		b := want[s.body]
		b.most++
		if s.qos == 1 {
			b.most = 1000
		}
		if !m.gone[s.n] {
			b.least++
		}
		want[s.body] = b
	}
	for body, b := range want {
		if n := got[body]; n < b.least || n > b.most {
			rt.Errorf("%s is there %d times, want %d to %d", body, n, b.least, b.most)
		}
	}
	left, err := trigger.StateOf(th, &trigger.Config{Adapter: "mqtt", Queue: "t", Group: "g"}).Load(packetPrefix)
	if err != nil || len(m.gone) == 0 && len(left) > 0 {
		rt.Errorf("packet ids that are kept for ever: %v %v", left, err)
	}
}

// handle is a consumer to whom everything succeeds.
func handle(ctx context.Context, th *engine.Thread) {
	c := trigger.NewConfig()
	feed := th.Feed("m", c.Policy())
	defer feed.Close()
	w, err := watch.New(th.Dir())
	if err != nil {
		return
	}
	defer w.Close()
	for {
		d, err := feed.Next(ctx, nil)
		if err == nil && len(d.Events) > 0 {
			_, err = feed.Settle(ctx, engine.Result{Verdict: engine.Succeeded})
		} else if err == nil {
			err = w.Wait(ctx, time.Time{})
		}
		if err != nil {
			return
		}
	}
}
