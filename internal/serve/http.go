package serve

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// What Options.Listen offers is spoken here without net/http: that package costs
// every start of the program, each push, 0.4 ms, and 2 MB of its size. Three
// paths, GET and one request for each connection need little of it. (Package net
// itself is linked anyway, by the SQLite driver.)

const (
	maxVisitors      = 64               // connections at once besides streams; more are told to come back
	maxStreams       = 64               // streams at once, so that they keep nobody else out
	visitTime        = 5 * time.Second  // for the request to come
	defaultWriteTime = 10 * time.Second // for any part of the answer to be taken
	lingerTime       = time.Second      // for the client to close, see farewell
)

// web is the HTTP listener.
type web struct {
	s        *Server
	listener net.Listener
	token    string
	streams  chan struct{}   // one place for each stream
	ctx      context.Context // ends when the draining begins
}

// ErrListen says that Options.Listen is no place to listen at, or not without
// Options.Token: whoever has an account on this host reaches each of its addresses,
// the loopback ones too.
var ErrListen = errors.New("cannot listen")

// ErrAddress says that the system does not let this process listen there: another
// one does, or it may not.
var ErrAddress = errors.New("cannot listen on")

// listenWeb opens the listener of Options.Listen, which answers nobody yet.
func (s *Server) listenWeb(ctx context.Context) (w *web, err error) {
	w = &web{s: s, token: s.opts.Token, streams: make(chan struct{}, s.descriptors.streams), ctx: ctx}
	if path, ok := strings.CutPrefix(s.opts.Listen, "unix:"); ok {
		if w.listener, err = listenPath(path); err != nil && !errors.Is(err, ErrListen) {
			err = fmt.Errorf("%w %s: %w", ErrAddress, s.opts.Listen, err)
		}
		return w, err
	}
	at, err := netip.ParseAddrPort(strings.Replace(s.opts.Listen, "localhost:", "127.0.0.1:", 1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w on %q: not ADDRESS:PORT nor unix:PATH", ErrListen, s.opts.Listen)
	case w.token == "":
		return nil, fmt.Errorf("%w on %q without a token: every account of this host reaches that address", ErrListen, s.opts.Listen)
	}
	if w.listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at)); err != nil {
		err = fmt.Errorf("%w %s: %w", ErrAddress, s.opts.Listen, systemError(err))
	}
	return w, err
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

// serve answers until the listener is closed.
func (w *web) serve() {
	accept(w.listener, int64(w.s.descriptors.visitors+w.s.descriptors.streams),
		func(conn net.Conn) { w.visit(conn, visitTime, w.answer) },
		func(conn net.Conn) {
			w.visit(conn, lingerTime, func(net.Conn, *httpRequest) error {
				return &httpError{503, "too many connections"}
			})
		})
}

// visit reads a request and has it answered. An *httpError says that nothing was
// written.
func (w *web) visit(conn net.Conn, patience time.Duration, answer func(net.Conn, *httpRequest) error) {
	conn.SetReadDeadline(time.Now().Add(patience))
	q, err := readHTTP(conn)
	conn.SetReadDeadline(time.Time{})
	conn.SetWriteDeadline(time.Now().Add(w.s.opts.writeTime))
	if err == nil {
		err = answer(conn, &q)
	}
	var refused *httpError
	if errors.As(err, &refused) {
		refuse(conn, refused)
	}
	farewell(conn)
}

// answer does what was asked for.
func (w *web) answer(conn net.Conn, q *httpRequest) error {
	if q.path == "/healthz" { // says nothing of any thread
		return w.health(conn)
	}
	if !w.allowed(q) {
		return &httpError{401, "the token is missing or wrong"}
	}
	switch q.path {
	case "/metrics":
		return respond(conn, 200, "text/plain; version=0.0.4; charset=utf-8", w.s.appendMetrics(nil))
	case "/events":
		return w.stream(conn, q)
	}
	return &httpError{404, "there are /healthz, /metrics and /events"}
}

// allowed reports whether a request has the token, if there is one. Without one,
// the mode of the socket says who comes in.
func (w *web) allowed(q *httpRequest) bool {
	if w.token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(q.auth, " ")
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare([]byte(token), []byte(w.token)) == 1
}

// health tells whether this process is of use.
func (w *web) health(conn net.Conn) error {
	if w.ctx.Err() != nil {
		return errDraining
	}
	alive := make(chan struct{})
	go func() {
		w.s.Alive()
		close(alive)
	}()
	timer := time.NewTimer(visitTime)
	defer timer.Stop()
	select {
	case <-alive:
		return respond(conn, 200, "text/plain; charset=utf-8", []byte("ok\n"))
	case <-timer.C:
		return &httpError{503, "stuck"}
	}
}

var errDraining = &httpError{503, "draining"}

var statusText = map[int]string{
	200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
	431: "Request Header Fields Too Large", 503: "Service Unavailable",
}

// appendHead appends the status line and the fields that every answer has.
func appendHead(b []byte, status int, contentType string) []byte {
	b = fmt.Appendf(b, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n",
		status, statusText[status], contentType)
	switch status {
	case 401:
		b = append(b, "WWW-Authenticate: Bearer\r\n"...)
	case 405:
		b = append(b, "Allow: GET\r\n"...)
	}
	return b
}

func respond(conn net.Conn, status int, contentType string, body []byte) error {
	b := fmt.Appendf(appendHead(nil, status, contentType), "Content-Length: %d\r\n\r\n", len(body))
	_, err := conn.Write(append(b, body...))
	return err
}

func refuse(conn net.Conn, e *httpError) {
	_ = respond(conn, e.status, "text/plain; charset=utf-8", []byte(e.reason+"\n"))
}

// farewell ends the connection such that the answer arrives: closing one with
// unread input makes the kernel throw it away.
func farewell(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, conn, 64<<10)
	}
}
