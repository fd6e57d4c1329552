package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"thread/internal/store/bolt"
	"thread/lock"
)

// TestNetworkRefused: on a network mount nothing is made and nothing opened.
func TestNetworkRefused(t *testing.T) {
	root := t.TempDir()
	local := filepath.Join(root, "local")
	if _, err := Init(local); err != nil {
		t.Fatal(err)
	}
	bolt.CheckMount = func(path string) error { return fmt.Errorf("%s is on NFS: %w", path, ErrNetwork) }
	t.Cleanup(func() { bolt.CheckMount = lock.CheckMount })
	remote := filepath.Join(root, "deep", "remote")
	for name, do := range map[string]func() error{
		"init":         func() error { _, err := Init(remote); return err },
		"openOrCreate": func() error { _, err := OpenOrCreate(remote); return err },
		"restore":      func() error { _, err := bolt.StartRestore(remote, false); return err },
		"repair":       func() error { _, err := Repair(ctx, local, remote); return err },
		"open":         func() error { _, err := Open(local); return err },
	} {
		if err := do(); !errors.Is(err, ErrNetwork) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(filepath.Dir(remote)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
}
