package api

import (
	"bytes"
	"context"

	"thread/engine"
	"thread/internal/signed"
)

// signing is the key of the deliveries of a thread.
type signing struct {
	signed.Key
	owner string // next to the consumer
}

// signing returns the key of the server for a directory. A thread on a server has its key in a
// record, so that all servers of the thread accept the same deliveries.
func (a *API) signing(ctx context.Context, t Thread) (signing, error) {
	e := t.Engine()
	if e.URL() == "" {
		return signing{a.key, e.Address()}, nil
	}
	if key, ok := a.keys.Load(e); ok {
		return signing{Key: key.(signed.Key)}, nil
	}
	key, err := threadKey(ctx, e)
	if err != nil {
		return signing{}, err
	}
	a.keys.Store(e, key)
	return signing{Key: key}, nil
}

// threadKey returns the key in the record of a thread. The first caller makes it.
func threadKey(ctx context.Context, t *engine.Thread) (key signed.Key, err error) {
	name := []byte("deliveries")
	read := func(tx *engine.Tx) (*engine.Records, error) {
		r, err := tx.Records("serve_keys")
		if err != nil {
			return nil, err
		}
		key = bytes.Clone(r.Get(name))
		return r, nil
	}
	err = t.View(ctx, func(tx *engine.Tx) error {
		_, err := read(tx)
		return err
	})
	if err != nil || key != nil {
		return key, err
	}
	err = t.Update(ctx, func(tx *engine.Tx) error {
		r, err := read(tx)
		if err != nil || key != nil {
			return err
		}
		key = signed.NewKey()
		return r.Put(name, key)
	})
	return key, err
}
