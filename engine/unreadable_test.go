package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"thread/engine"
	"thread/index"
)

// TestUnreadableRecord: a record that cannot be read fails the transaction with that, whatever
// its function makes of a record that seems to be missing.
func TestUnreadableRecord(t *testing.T) {
	ctx := context.Background()
	th, err := engine.Init(filepath.Join(t.TempDir(), "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	errMissing := errors.New("no such record")
	read := func(tx *engine.Tx) error {
		r, err := tx.Records("mine")
		if err != nil {
			return err
		}
		defer index.FailSteps(func() error { return fmt.Errorf("%w: on purpose", index.ErrDamaged) })()
		if r.Get([]byte("key")) == nil {
			return errMissing
		}
		return nil
	}
	err = th.Update(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records("mine")
		if err != nil {
			return err
		}
		return r.Put([]byte("key"), []byte("value"))
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"View": th.View(ctx, read), "Update": th.Update(ctx, read)} {
		if !errors.Is(err, engine.ErrCorrupt) || errors.Is(err, errMissing) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
