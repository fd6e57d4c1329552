package serve

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"thread/internal/socket"
)

// DefaultPort is the TCP port of an Options.Listen that names none.
const DefaultPort = 9464

// ErrListen says that Options.Listen is not a place to listen at, or not without
// Options.Clients: the process that has an account on this host reaches each of its addresses,
// the loopback ones too.
var ErrListen = socket.ErrPlace

// ErrAddress says that the system does not let this process listen there: another
// one does, or it may not.
var ErrAddress = errors.New("cannot listen on")

// listen opens the listener of an Options.Listen: unix:PATH, or, if there is a
// token, ADDRESS:PORT, ADDRESS or :PORT. It returns ErrListen or ErrAddress.
func listen(where string, token bool) (l net.Listener, err error) {
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		l, err := socket.Listen(path)
		switch {
		case errors.Is(err, ErrListen):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%w %s: %w", ErrAddress, where, err)
		}
		return l, nil
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

// Loopback reports whether an Options.Listen is reached from this host only.
func Loopback(where string) bool {
	at, ok := tcpAddress(where)
	return ok && at.IP.IsLoopback()
}

// systemError returns what the system said, without the words of package net that
// repeat the address.
func systemError(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}

// ErrBase reports an address of Options.External or a path of Options.Base that is not one.
var ErrBase = errors.New("invalid address of the pages")

var basePath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+$`)

// ParseBase returns the path below which a proxy has the pages, without a slash at its
// end; "" for the root.
func ParseBase(text string) (string, error) {
	base := strings.TrimSuffix(text, "/")
	if base != "" && (!basePath.MatchString(base) || path.Clean(base) != base || base == "/threads" || strings.HasPrefix(base, "/threads/")) {
		return "", ErrBase
	}
	return base, nil
}

// ParseExternal returns the address at which browsers reach the pages.
func ParseExternal(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.RawPath != "" {
		return nil, ErrBase
	}
	u.Path, err = ParseBase(u.Path)
	return u, err
}

// origin is the origin of the pages as browsers know it, "" where that is not configured.
func (o *Options) origin() string {
	if o.External == nil {
		return ""
	}
	return o.External.Scheme + "://" + strings.ToLower(o.External.Host)
}

// external reports whether a field Host is the host of Options.External.
func (o *Options) external(host string) bool {
	if o.External == nil {
		return false
	}
	if name, _, err := net.SplitHostPort(host); err == nil && o.External.Port() == "" {
		host = name
	}
	return strings.EqualFold(host, o.External.Host)
}

// below answers requests whose path begins with the base as those without it, so that a
// proxy may remove the base or leave it.
func below(base string, next http.Handler) http.Handler {
	if base == "" {
		return next
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		rest, found := strings.CutPrefix(q.URL.Path, base)
		switch {
		case !found || rest != "" && rest[0] != '/':
			rest = q.URL.Path
		case rest == "":
			http.Redirect(rw, q, base+"/", http.StatusPermanentRedirect)
			return
		}
		short, at := *q, *q.URL
		at.Path, at.RawPath = rest, strings.TrimPrefix(at.RawPath, base)
		short.URL = &at
		next.ServeHTTP(&basedWriter{rw, base}, &short)
	})
}

// basedWriter puts the base before the path of a redirection.
type basedWriter struct {
	http.ResponseWriter
	base string
}

// Unwrap is for http.ResponseController.
func (b *basedWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// WriteHeader completes the header.
func (b *basedWriter) WriteHeader(status int) {
	if at := b.Header().Get("Location"); strings.HasPrefix(at, "/") {
		b.Header().Set("Location", b.base+at)
	}
	b.ResponseWriter.WriteHeader(status)
}

// acceptPause is the time between attempts while the process has no descriptor
// left, which nothing tells of.
const acceptPause = 100 * time.Millisecond

// accept passes the connections of l to handle, each in a separate goroutine, at
// most that many at once, until l is closed. As many again are passed to refuse, to be
// told so, and those beyond are closed. Who calls keep does not count any more.
func accept(l net.Listener, most int64, handle, refuse func(conn net.Conn, keep func())) {
	var active atomic.Int64
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		do, n := handle, active.Add(1)
		if n > most {
			do = refuse
		}
		go func() {
			done := sync.OnceFunc(func() { active.Add(-1) })
			defer done()
			defer conn.Close()
			if n <= 2*most {
				do(conn, done)
			}
		}()
	}
}

// descriptors says what the file descriptors that this process may have are for:
// who takes only its own share fails for no lack of them.
type descriptors struct {
	runs    int // handlers at once
	retries int // whose right is held at once
	threads int // kept open at once
	conns   int // connections over HTTP that are not streams
	streams int
}

const (
	maxConns         = 64               // connections at once except streams; more are told to come back
	maxStreams       = 1024             // streams at once, so that they keep no other process out
	maxHeaderBytes   = 8 << 10          // of a request
	patience         = time.Second      // with a client that does not read, when there are too many
	headerTime       = 5 * time.Second  // for the header of a request to come
	idleTime         = 90 * time.Second // for the next request on the same connection
	defaultWriteTime = 10 * time.Second // for any part of the answer to be taken
	defaultBodyTime  = 10 * time.Second // for each 64 KiB of a request to come
	healthTime       = 5 * time.Second  // for the server's locks to be had
	shutdownTime     = time.Second      // for the last answers to be taken
)

// share divides limit descriptors: half of them for handlers.
func share(limit int) descriptors {
	rest := max(limit-ownDescriptors, 0)
	d := descriptors{
		runs:    max(rest/2/runDescriptors, 1),
		conns:   min(max(rest/16, 2), maxConns),
		streams: min(max(rest/16, 2), maxStreams),
	}
	rest = max(rest-d.runs*runDescriptors-d.conns-d.streams, 0)
	d.retries = rest / 3
	d.threads = (rest - d.retries) / openDescriptors
	return d
}

// maxPasses bounds over how many threads a pass is made at once: each costs memory, and
// more do not make it faster.
const maxPasses = 4

// What one of each needs at most.
const (
	ownDescriptors  = 16 + 3*maxPasses // this process itself, and its passes
	runDescriptors  = 16               // locks, pipes, logs; some of them only while the handler is started
	openDescriptors = 3                // a lock and two sockets
)
