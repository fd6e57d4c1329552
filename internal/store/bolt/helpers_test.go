package bolt_test

import (
	"context"

	"thread/engine"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

var ctx = context.Background()

func dirOf(th *engine.Thread) *bolt.Store { return th.Store().(*bolt.Store) }

func view(th *engine.Thread, fn func(tx *bolt.Tx) error) error {
	return dirOf(th).View(ctx, func(tx store.Tx) error { return fn(tx.(*bolt.Tx)) })
}

func write(th *engine.Thread, fn func(tx *bolt.Tx) error) error {
	return bolt.Write(ctx, dirOf(th), func(tx *bolt.Tx, _ store.Session) error { return fn(tx) })
}
