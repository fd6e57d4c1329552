package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"
)

// countedListener bounds the connections that are open: most in all, each from one
// address. A connection beyond either bound takes the place of the one that has waited
// longest without a complete request, or of one that has waited longer than patience for
// its client to read. Where there is none it is marked as over: only known clients and
// /healthz are answered there. Beyond twice most, a connection is closed at once, so that
// a flood takes no more descriptors than that.
type countedListener struct {
	net.Listener
	most, each int
	patience   time.Duration
	trusted    func(netip.Addr) bool // a proxy, which has as many as there are

	mu   sync.Mutex
	open map[*countedConn]bool
	from map[netip.Addr]int // how many of each address
}

func newCountedListener(l net.Listener, most int, patience time.Duration, trusted func(netip.Addr) bool) *countedListener {
	return &countedListener{Listener: l, most: most, each: max(most/2, 1), patience: patience, trusted: trusted,
		open: map[*countedConn]bool{}, from: map[netip.Addr]int{}}
}

// countedConn is one of the connections of a countedListener. The mutex of the listener
// guards what follows it.
type countedConn struct {
	net.Conn
	l    *countedListener
	from netip.Addr // invalid for a unix socket, whose clients are not told apart
	over bool       // one of too many

	waits  time.Time // since when it has no complete request; zero while one is answered
	writes time.Time // since when a Write continues; zero for none
}

// Accept returns a *countedConn.
func (l *countedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(conn); c != nil {
			return c, nil
		}
		_ = conn.Close()
	}
}

// moment is how long a connection keeps its place from others of its address.
const moment = 20 * time.Millisecond

// admit returns nil for a connection that there is no place for.
func (l *countedListener) admit(conn net.Conn) *countedConn {
	c := &countedConn{Conn: conn, l: l, from: addressOf(conn.RemoteAddr()), waits: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	// A header that is on its way has a moment: with many streams of one address, only those
	// of new requests wait.
	own := func(old *countedConn) bool {
		return old.from == c.from && (old.waits.IsZero() || time.Since(old.waits) > moment)
	}
	if c.from.IsValid() && l.from[c.from] >= l.each && !l.trusted(c.from) && !l.makeRoom(own) {
		c.over = true
	}
	if len(l.open) >= l.most && !l.makeRoom(func(*countedConn) bool { return true }) {
		c.over = true
	}
	if len(l.open) >= 2*l.most {
		return nil
	}
	l.open[c] = true
	l.from[c.from]++
	return c
}

// makeRoom closes the connection that has waited longest of those that may go, and
// reports whether there was one. The mutex is held.
func (l *countedListener) makeRoom(may func(*countedConn) bool) bool {
	var victim *countedConn
	var since time.Time
	for c := range l.open {
		at := c.waits
		if at.IsZero() && !c.writes.IsZero() && time.Since(c.writes) > l.patience {
			at = c.writes
		}
		if !at.IsZero() && may(c) && (victim == nil || at.Before(since)) {
			victim, since = c, at
		}
	}
	if victim == nil {
		return false
	}
	l.drop(victim)
	if victim.waits.IsZero() {
		victim.forget()
	}
	_ = victim.Conn.Close()
	return true
}

// drop stops counting c. The mutex is held.
func (l *countedListener) drop(c *countedConn) {
	if !l.open[c] {
		return
	}
	delete(l.open, c)
	if l.from[c.from]--; l.from[c.from] == 0 {
		delete(l.from, c.from)
	}
}

// state is the ConnState of an http.Server.
func (l *countedListener) state(conn net.Conn, state http.ConnState) {
	c := counted(conn)
	if c == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateActive: // the header is complete
		c.waits = time.Time{}
	case http.StateIdle:
		c.waits = time.Now()
	}
}

// Close closes the connection. It may be called again.
func (c *countedConn) Close() error {
	c.l.mu.Lock()
	c.l.drop(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite is what net/http asks for to let a refusal arrive although the request
// was not read to its end.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Write writes. After a time limit, the kernel does not keep the rest for the client.
func (c *countedConn) Write(b []byte) (int, error) {
	c.setWrites(time.Now())
	n, err := c.Conn.Write(b)
	c.setWrites(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.forget()
	}
	return n, err
}

func (c *countedConn) setWrites(at time.Time) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.writes = at
}

// forget has the kernel drop what it still has for the client when the connection is
// closed.
func (c *countedConn) forget() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// crowded reports whether half of the connections are taken: then they
// are not kept for another request.
func (c *countedConn) crowded() bool {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return len(c.l.open) >= c.l.each
}

// addressOf returns the IP address of a, the invalid one for a unix socket.
func addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

type connKey struct{}

// withConn keeps a connection for the handlers of its requests, see connOf.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request's context, nil in a test without one.
func connOf(ctx context.Context) *countedConn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	return counted(conn)
}

// counted returns the connection below TLS, nil for another one.
func counted(conn net.Conn) *countedConn {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	c, _ := conn.(*countedConn)
	return c
}
