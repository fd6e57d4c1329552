package index

import (
	"sync/atomic"

	"go.etcd.io/bbolt"
)

// failure is set by tests alone.
var failure atomic.Pointer[func() error]

// FailSteps has fn called before each look at a page of a tree and before each write, whose
// error it then returns, until back is called. It is for tests: a page that is damaged when
// it is looked at for the second time cannot be made, as the first look finds the damage.
func FailSteps(fn func() error) (back func()) {
	failure.Store(&fn)
	return func() { failure.Store(nil) }
}

// Begin begins a transaction. In an open database it fails for tests alone.
func Begin(db *bbolt.DB, writable bool) (*bbolt.Tx, error) {
	if err := step(); err != nil {
		return nil, err
	}
	return db.Begin(writable)
}

// step returns the error of a test, if there is one.
func step() error {
	if fn := failure.Load(); fn != nil {
		return (*fn)()
	}
	return nil
}
