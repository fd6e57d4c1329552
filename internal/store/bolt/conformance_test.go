package bolt_test

import (
	"path/filepath"
	"testing"

	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/storetest"
)

func TestConformance(t *testing.T) { conforms(t, bolt.Options{}) }

// TestConformanceKept is TestConformance for a store that keeps its database open.
func TestConformanceKept(t *testing.T) { conforms(t, bolt.Options{KeepOpen: true}) }

func conforms(t *testing.T, o bolt.Options) {
	storetest.Run(t, func(t *testing.T) func(l store.Logic) store.Store {
		dir := filepath.Join(t.TempDir(), "thread")
		if _, err := bolt.Init(dir, bolt.Options{}); err != nil {
			t.Fatal(err)
		}
		return func(l store.Logic) store.Store {
			o := o
			o.Logic = l
			s, err := bolt.Open(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	})
}
