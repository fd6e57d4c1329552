package bolt_test

import (
	"path/filepath"
	"testing"

	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func(l store.Logic) store.Store {
		dir := filepath.Join(t.TempDir(), "thread")
		if _, err := bolt.Init(dir, bolt.Options{}); err != nil {
			t.Fatal(err)
		}
		return func(l store.Logic) store.Store {
			s, err := bolt.Open(dir, bolt.Options{Logic: l})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	})
}
