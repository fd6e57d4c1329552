package serve

import (
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

type askerKey struct{}

// askerOf returns the client that sends a request, nil for one who is not known.
func askerOf(q *http.Request) *client {
	c, _ := q.Context().Value(askerKey{}).(*client)
	return c
}

// asker returns who sends a request, by its token; nil for one who is not known. A wrong
// token counts as a guess: pause is how long the address then has to wait.
func (w *web) asker(q *http.Request) (from *client, pause time.Duration) {
	if w.clients.open() {
		return everybody, 0
	}
	token := bearer(q)
	if token == "" {
		return nil, 0
	}
	return w.try(q, token)
}

// try returns the client with a token, or how long its address has to wait before it may
// try again.
func (w *web) try(q *http.Request, token string) (from *client, pause time.Duration) {
	at := w.address(q)
	pause = w.guesses.pause(at, time.Now())
	if from = w.clients.find(token, pause > 0); from != nil {
		return from, 0
	}
	next, first := w.guesses.wrong(at, time.Now())
	if first {
		w.s.log.Log(q.Context(), slog.LevelWarn, "http: wrong tokens", "address", at, "wrong", freeGuesses)
	}
	if pause > 0 {
		pause = max(pause, next)
	}
	return nil, pause
}

// address returns where a request comes from: what the nearest proxy says that is trusted,
// else the other end of the connection; the invalid one for a unix socket.
func (w *web) address(q *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(q.RemoteAddr)
	at := from.Addr().Unmap().WithZone("")
	forwarded := strings.Split(strings.Join(q.Header.Values("X-Forwarded-For"), ","), ",")
	for len(forwarded) > 0 && w.trusted(at) {
		last := len(forwarded) - 1
		next, err := netip.ParseAddr(strings.TrimSpace(forwarded[last]))
		if err != nil {
			break
		}
		at, forwarded = next.Unmap().WithZone(""), forwarded[:last]
	}
	return at
}

// trusted reports whether that is the address of a proxy.
func (w *web) trusted(at netip.Addr) bool {
	return slices.ContainsFunc(w.s.opts.Proxies, func(p netip.Prefix) bool { return p.Contains(at) })
}

// encrypted reports whether a trusted proxy says that its client came by TLS.
func (w *web) encrypted(q *http.Request) bool {
	from, _ := netip.ParseAddrPort(q.RemoteAddr)
	return w.trusted(from.Addr().Unmap()) && q.Header.Get("X-Forwarded-Proto") == "https"
}
