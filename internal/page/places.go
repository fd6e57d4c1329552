package page

import "sync"

// Places are the places of streams: that many at once, and of them a part for one client, so
// that it keeps no other one out.
type Places struct {
	all, each int

	mu    sync.Mutex
	total int
	of    map[string]int // by client
}

// NewPlaces returns all places, of which one client gets each.
func NewPlaces(all, each int) *Places { return &Places{all: all, each: each, of: map[string]int{}} }

// Taken is why a place was not given.
type Taken int

// Why a place was not given.
const (
	Given    Taken = iota
	AllTaken       // by whomever
	OwnTaken       // by that client
)

// Take takes a place for a client, "" for one of whom nothing is known and who has no
// separate bound.
func (p *Places) Take(client string) (release func(), taken Taken) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case client != "" && p.of[client] >= p.each:
		return nil, OwnTaken
	case p.total >= p.all:
		return nil, AllTaken
	}
	p.total++
	p.of[client]++
	var once sync.Once
	return func() { once.Do(func() { p.release(client) }) }, Given
}

func (p *Places) release(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	if p.of[client]--; p.of[client] == 0 {
		delete(p.of, client)
	}
}

// Count is how many are taken.
func (p *Places) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}
