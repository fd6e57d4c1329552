package serve

import (
	"net/netip"
	"sync"
	"time"
)

const (
	freeGuesses  = 10               // wrong tokens of an address before it has to wait
	longestPause = time.Minute      // after the next ones, each twice as long as the one before
	guessesKept  = 10 * time.Minute // since the last wrong one
	guessRate    = 10               // wrong tokens a second, of all addresses together
	guessBurst   = 100              // of them at once
	maxGuessing  = 4096             // addresses of which is known that they guess
)

// guesses bounds how often a client may try a token. An address that gave some wrong ones
// has to wait, longer each time, and so has everybody after too many from all addresses.
// Who has to wait gets in with a strong token only: that is not found by trying, so that
// a flood keeps out no client that has one. See Client.
type guesses struct {
	mu    sync.Mutex
	of    map[netip.Addr]*guess
	spent float64 // of guessBurst
	at    time.Time
}

type guess struct {
	wrong int
	last  time.Time
	until time.Time // the next try
}

// guesser returns what stands for an address: all of a /64 of IPv6, which one host may have.
func guesser(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	net64, err := a.Prefix(64)
	if err != nil {
		return a
	}
	return net64.Addr()
}

// pause returns how long that address has to wait, 0 when it may try.
func (g *guesses) pause(from netip.Addr, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refill(now)
	wait := time.Duration(0)
	if g.spent >= guessBurst {
		wait = time.Second
	}
	if known := g.of[guesser(from)]; known != nil {
		wait = max(wait, known.until.Sub(now))
	}
	return wait
}

// wrong counts a wrong token of that address. It returns how long it has to wait, and
// whether it is the first one that makes it wait.
func (g *guesses) wrong(from netip.Addr, now time.Time) (wait time.Duration, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refill(now)
	g.spent = min(g.spent+1, guessBurst)
	known := g.of[guesser(from)]
	if known == nil {
		g.make(now)
		known = &guess{}
		g.of[guesser(from)] = known
	}
	if now.Sub(known.last) > guessesKept {
		*known = guess{}
	}
	known.last = now
	if known.until.After(now) { // it did not wait: that does not count as a try
		return known.until.Sub(now), false
	}
	known.wrong++
	if known.wrong < freeGuesses {
		return 0, false
	}
	wait = min(time.Second<<min(known.wrong-freeGuesses, 30), longestPause)
	known.until = now.Add(wait)
	return wait, known.wrong == freeGuesses
}

// refill forgets what is long ago. The mutex is held.
func (g *guesses) refill(now time.Time) {
	g.spent = max(g.spent-guessRate*max(now.Sub(g.at), 0).Seconds(), 0)
	g.at = now
}

// make makes room for one address more. The mutex is held.
func (g *guesses) make(now time.Time) {
	if g.of == nil {
		g.of = map[netip.Addr]*guess{}
	}
	if len(g.of) < maxGuessing {
		return
	}
	var oldest netip.Addr
	for a, known := range g.of {
		if now.Sub(known.last) > guessesKept {
			delete(g.of, a)
			continue
		}
		if !oldest.IsValid() || known.last.Before(g.of[oldest].last) {
			oldest = a
		}
	}
	if len(g.of) >= maxGuessing {
		delete(g.of, oldest)
	}
}
