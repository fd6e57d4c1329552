package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// DefaultPort is the TCP port of an Options.Listen that names none.
const DefaultPort = 9464

// ErrListen says that Options.Listen is no place to listen at, or not without
// Options.Clients: whoever has an account on this host reaches each of its addresses,
// the loopback ones too.
var ErrListen = errors.New("cannot listen")

// ErrAddress says that the system does not let this process listen there: another
// one does, or it may not.
var ErrAddress = errors.New("cannot listen on")

// listen opens the listener of an Options.Listen: unix:PATH, or, if there is a
// token, ADDRESS:PORT, ADDRESS or :PORT. It returns ErrListen or ErrAddress.
func listen(where string, token bool) (l net.Listener, err error) {
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		if l, err = listenPath(path); err != nil && !errors.Is(err, ErrListen) {
			err = fmt.Errorf("%w %s: %w", ErrAddress, where, err)
		}
		return l, err
	}
	at, ok := tcpAddress(where)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w on %q: not ADDRESS, ADDRESS:PORT, :PORT nor unix:PATH", ErrListen, where)
	case !token:
		return nil, fmt.Errorf("%w on %q without a token: every account of this host reaches that address", ErrListen, where)
	}
	if l, err = net.ListenTCP("tcp", at); err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrAddress, where, systemError(err))
	}
	return l, nil
}

// tcpAddress returns the address that where says. The host is an IP address,
// localhost for 127.0.0.1, or missing for every address of the host, but no other
// name: what to listen on must not depend on who answers for a name.
func tcpAddress(where string) (*net.TCPAddr, bool) {
	host, port := strings.TrimSuffix(strings.TrimPrefix(where, "["), "]"), strconv.Itoa(DefaultPort)
	if _, err := netip.ParseAddr(host); err != nil && host != "localhost" {
		if host, port, err = net.SplitHostPort(where); err != nil {
			return nil, false
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, false
	}
	switch host {
	case "":
		return &net.TCPAddr{Port: int(n)}, true
	case "localhost":
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, false
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(n))), true
}

// systemError returns what the system said, without the words of package net that
// repeat the address.
func systemError(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}

// listenPath makes a socket in place of one of this account that nobody listens on
// any more, and of nothing else, in a directory where no other account can put one
// of its own in that place.
func listenPath(path string) (net.Listener, error) {
	if path == "" {
		return nil, fmt.Errorf("%w on unix: without a path", ErrListen)
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err == nil && !private(dir) {
		return nil, fmt.Errorf("%w on %s: another account can write its directory", ErrListen, path)
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("%w on %s: it is there and no socket", ErrListen, path)
	}
	if err == nil && !isOwn(info) {
		return nil, fmt.Errorf("%w on %s: it is there and of another account", ErrListen, path)
	}
	if err == nil {
		if conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"}); err == nil {
			conn.Close()
			return nil, syscall.EADDRINUSE
		}
	}
	l, err := listenUnix(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return nil, systemError(err)
	}
	return l, nil
}

// countedListener counts the connections that are open. Those beyond most are
// marked, to be told so, and those beyond twice as many are closed at once, so that
// a flood takes no more descriptors than that. Before one is marked, the one that has
// waited for its client to read for the longest time is closed, if that is longer than
// patience: who never reads keeps nobody out.
type countedListener struct {
	net.Listener
	most     int64
	patience time.Duration
	open     atomic.Int64

	mu      sync.Mutex
	writing map[*countedConn]time.Time // since when a Write of theirs goes on
}

// giveUp closes the connection that has waited for its client for the longest time, and
// reports whether there was one.
func (l *countedListener) giveUp() bool {
	l.mu.Lock()
	var victim *countedConn
	since := time.Now().Add(-l.patience)
	for c, at := range l.writing {
		if at.Before(since) {
			victim, since = c, at
		}
	}
	delete(l.writing, victim)
	l.mu.Unlock()
	if victim == nil {
		return false
	}
	victim.forget()
	_ = victim.Close()
	return true
}

// Accept returns a *countedConn.
func (l *countedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		n := l.open.Add(1)
		if n > l.most && l.giveUp() {
			n--
		}
		if n <= 2*l.most {
			return &countedConn{Conn: conn, l: l, over: n > l.most}, nil
		}
		l.open.Add(-1)
		conn.Close()
	}
}

// countedConn is one of the connections of a countedListener.
type countedConn struct {
	net.Conn
	l      *countedListener
	over   bool // one of too many
	closed atomic.Bool
}

// Close closes the connection. It may be called again.
func (c *countedConn) Close() error {
	if !c.closed.Swap(true) {
		defer c.l.open.Add(-1)
	}
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

// Write writes. What a client did not take in time is not kept for it by the kernel
// either, once the connection is closed.
func (c *countedConn) Write(b []byte) (int, error) {
	c.l.mu.Lock()
	c.l.writing[c] = time.Now()
	c.l.mu.Unlock()
	n, err := c.Conn.Write(b)
	c.l.mu.Lock()
	delete(c.l.writing, c)
	c.l.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.forget()
	}
	return n, err
}

// forget has the kernel forget what it still has for the client, once it is closed.
func (c *countedConn) forget() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// crowded reports whether more than half of the connections are taken: then they
// are not kept for another request.
func (c *countedConn) crowded() bool { return c.l.open.Load() > c.l.most/2 }

type connKey struct{}

// withConn keeps a connection for the handlers of its requests, see connOf.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request's context, nil in a test without one.
func connOf(ctx context.Context) *countedConn {
	conn := ctx.Value(connKey{})
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	c, _ := conn.(*countedConn)
	return c
}
