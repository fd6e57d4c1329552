package mqtt

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho/session/state"

	"thread/bridge/trigger"
)

// manager is paho's session manager for one connection. What we send is left to
// paho's own, in memory. What the broker sends is the source's: paho's own would
// forget which messages are stored when the process ends, and would acknowledge by
// packet ids that may belong to another connection by then (eclipse/paho.golang#160).
type manager struct {
	*state.State
	k *source
	l *link
}

func newManager(k *source, l *link) *manager { return &manager{state.NewInMemory(), k, l} }

// ConAckReceived implements session.SessionManager. An error drops the connection.
func (n *manager) ConAckReceived(w io.Writer, c *packets.Connect, a *packets.Connack) error {
	if err := n.k.begin(n.l, w.(*wire), a.SessionPresent); err != nil {
		return err
	}
	return n.State.ConAckReceived(w, c, a)
}

// PacketReceived implements session.SessionManager.
func (n *manager) PacketReceived(p *packets.ControlPacket, to chan<- *packets.Publish) error {
	switch c := p.Content.(type) {
	case *packets.Publish:
		n.k.receive(n.l, c)
		return nil
	case *packets.Pubrel:
		n.k.release(n.l, c.PacketID)
		return nil
	}
	return n.State.PacketReceived(p, to)
}

// Ack implements session.SessionManager: paho calls it for messages with QoS 0 only.
func (n *manager) Ack(*packets.Publish) error { return nil }

// What is stored in trigger.State: the name that we have given to the broker's
// session, and for each packet id of it that is stored and not released the sum of
// its message. A packet id of a session that the broker has lost means nothing, even
// when its message is stored only now: so the name is part of the key.
const (
	sessionKey   = "session"
	packetPrefix = "packet:"
)

func packetKey(session string, id uint16) string {
	return fmt.Sprintf("%s%s:%05d", packetPrefix, session, id)
}

// begin makes l the connection that counts, and learns which session it continues.
func (k *source) begin(l *link, w *wire, present bool) error {
	k.mu.Lock()
	st, ctx, first := k.state, k.life, k.session == ""
	k.mu.Unlock()
	if st == nil {
		return errNotConnected
	}
	stored, err := st.Load("")
	if err != nil {
		return fmt.Errorf("reading the session: %w", err)
	}
	name := string(stored[sessionKey])
	var ws []trigger.Write
	if name == "" || !present {
		if name != "" {
			k.log.Warn("the broker has lost the session: messages may be missing; packet ids are cleared", "client_id", k.id)
		}
		b := make([]byte, 8)
		rand.Read(b)
		name = hex.EncodeToString(b)
		ws = append(ws, trigger.Write{Key: sessionKey, Value: []byte(name)})
	}
	if first { // later, copies of their messages may be on their way to the store
		for key := range stored {
			if strings.HasPrefix(key, packetPrefix) && !strings.HasPrefix(key, packetPrefix+name+":") {
				ws = append(ws, trigger.Write{Key: key, Delete: true})
			}
		}
	}
	if len(ws) > 0 && !k.trial() {
		if err := st.Update(ctx, ws); err != nil {
			return fmt.Errorf("storing the session: %w", err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session != name {
		k.unacked = map[uint16]unacked{}
	}
	l.wire = w
	k.session, k.link = name, l
	return nil
}

// unacked is a message with QoS 1 that was given out and whose acknowledgement was
// never written: when it is redelivered it is the same one.
type unacked struct {
	sum [16]byte
	id  string
}

// delivery is the Handle of a message: the connection that it came by.
type delivery struct {
	l    *link
	id   uint16
	qos  byte
	done bool
}

// sum tells messages apart that have the same packet id.
func sum(p *packets.Publish) (s [16]byte) {
	h := sha256.New()
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b)))) // a hash does not fail
		h.Write(b)
	}
	part([]byte(p.Topic))
	part(p.Payload)
	if q := p.Properties; q != nil {
		part([]byte(q.ContentType))
		part([]byte(q.ResponseTopic))
		part(q.CorrelationData)
		for _, u := range q.User {
			part([]byte(u.Key))
			part([]byte(u.Value))
		}
	}
	copy(s[:], h.Sum(nil))
	return s
}

// receive takes a message with QoS 1 or 2.
func (k *source) receive(l *link, p *packets.Publish) {
	s := sum(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.link != l {
		return // it is redelivered
	}
	d := &delivery{l: l, id: p.PacketID, qos: p.QoS}
	l.order = append(l.order, d)
	m := k.message(p)
	m.Handle, m.Redelivered = d, p.Duplicate
	if p.QoS == 2 {
		m.Position = &trigger.Position{Key: packetKey(k.session, p.PacketID), At: s[:], Exact: true}
		m.Positional = !m.named
	} else {
		if was, ok := k.unacked[p.PacketID]; ok && p.Duplicate && was.sum == s {
			m.ID = was.id
		}
		k.unacked[p.PacketID] = unacked{s, m.ID}
		if p.Duplicate {
			m.Headers["x-redelivered"] = "true"
		}
	}
	k.queue = append(k.queue, m.Message)
	k.tell()
}

// Ack implements trigger.Source. Acknowledgements are written in the order of the
// messages, as the protocol asks: one that comes early waits for those before it.
func (k *source) Ack(_ context.Context, ms []trigger.Message) error {
	late := false
	k.mu.Lock()
	l := k.link
	for i := range ms {
		d, ok := ms[i].Handle.(*delivery)
		switch {
		case !ok: // of QoS 0, or of a connection before: the broker sends it again
		case d.l != l:
			// With QoS 2 its packet id is stored; with QoS 1 its key must wait for the
			// redelivery.
			late = late || d.qos == 1
		default:
			d.done = true
		}
	}
	var out []byte
	if l != nil {
		n := 0
		for n < len(l.order) && l.order[n].done {
			d := l.order[n]
			kind := packets.PUBREC
			if d.qos == 1 {
				kind = packets.PUBACK
				delete(k.unacked, d.id)
			}
			out = appendAck(out, kind, d.id)
			n++
		}
		l.order = l.order[n:]
	}
	k.mu.Unlock()
	if len(out) > 0 {
		if err := l.write(out); err != nil {
			return err
		}
	}
	if late {
		return errors.New("the connection was lost before")
	}
	return nil
}

// appendAck appends a PUBACK, PUBREC or PUBCOMP that says success.
func appendAck(b []byte, kind byte, id uint16) []byte {
	return append(b, kind<<4, 2, byte(id>>8), byte(id))
}

// release takes a PUBREL: the packet id may mean another message soon.
func (k *source) release(l *link, id uint16) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.releases = append(l.releases, id)
	select {
	case l.released <- struct{}{}:
	default:
	}
}

// releaser forgets packet ids, as many as there are in one transaction, and says
// PUBCOMP only after that: the broker may use them for other messages from then on.
// It ends with the connection.
func (k *source) releaser(ctx context.Context, l *link) {
	wait := 100 * time.Millisecond
	for {
		select {
		case <-l.client.Done():
			return
		case <-l.released:
		}
		k.mu.Lock()
		ids, name := l.releases, k.session
		l.releases = nil
		k.mu.Unlock()
		ws := make([]trigger.Write, 0, len(ids))
		var out []byte
		for _, id := range ids {
			ws = append(ws, trigger.Write{Key: packetKey(name, id), Delete: true})
			out = appendAck(out, packets.PUBCOMP, id)
		}
		for {
			err := k.state.Update(ctx, ws)
			if err == nil {
				wait = 100 * time.Millisecond
				break
			}
			k.log.Warn("packet ids cannot be released, tried again", "error", err, "wait", wait)
			select {
			case <-l.client.Done():
				return
			case <-time.After(wait):
			}
			wait = min(2*wait, 30*time.Second)
		}
		if err := l.write(out); err != nil {
			return // the broker asks again
		}
	}
}
