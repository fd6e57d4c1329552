package trigger

import "thread/engine"

// known is what one transaction knows of messages. The place of a stream is read once
// and stored once, however many messages of it the transaction has.
type known struct {
	r      *engine.Records
	c      *Config
	named  bool // there are records of keys
	places map[string]*place
	latest *place // of the message before
}

// place is how far a stream is stored.
type place struct {
	key    string
	record []byte // its key in the table
	stored []byte // nil: nothing is
	moved  bool
}

func newKnown(r *engine.Records, c *Config) (*known, error) {
	k := &known{r: r, c: c, places: map[string]*place{}}
	prefix := key(kindKey, c.Name)
	for _, err := range r.Ascend(prefix, after(prefix)) {
		if err != nil {
			return nil, err
		}
		k.named = true
		break
	}
	return k, nil
}

func (k *known) place(name string) (*place, error) {
	if k.latest != nil && k.latest.key == name {
		return k.latest, nil
	}
	p := k.places[name]
	if p == nil {
		p = &place{key: name, record: k.c.stateKey(name)}
		var err error
		if p.stored, err = get(k.r, p.record); err != nil {
			return nil, err
		}
		k.places[name] = p
	}
	k.latest = p
	return p, nil
}

// at returns what is stored at a position's place, nil when nothing is.
func (k *known) at(p *Position) ([]byte, error) {
	if p.Exact { // the adapter writes to it, too
		return get(k.r, k.c.stateKey(p.Key))
	}
	at, err := k.place(p.Key)
	if err != nil {
		return nil, err
	}
	return at.stored, nil
}

// move notes that the message at p is stored.
func (k *known) move(p *Position) error {
	if p.Exact {
		return put(k.r, k.c.stateKey(p.Key), p.At)
	}
	at, err := k.place(p.Key)
	if err == nil && string(at.stored) < string(p.At) {
		at.stored, at.moved = p.At, true
	}
	return err
}

// store stores the places that were moved.
func (k *known) store() error {
	for _, p := range k.places {
		if !p.moved {
			continue
		}
		if err := put(k.r, p.record, p.stored); err != nil {
			return err
		}
	}
	return nil
}
