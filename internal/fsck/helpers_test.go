package fsck

import (
	"context"
	"testing"

	"thread/internal/store/bolt"
)

var ctx = context.Background()

func start(t *testing.T, dir string) *bolt.Restore {
	t.Helper()
	r, err := bolt.StartRestore(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}
