package fsck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// TestDamagedSmallBucket: bbolt keeps a small bucket in the leaf of its parent, as a
// page whose number is 0. Where a torn leaf makes a branch of that page, its children
// are the page itself, and bbolt's First does not end and its Seek overflows the
// stack.
func TestDamagedSmallBucket(t *testing.T) {
	dir, _ := threeEvents(t, pushFourth)
	path := filepath.Join(dir, bolt.DatabaseName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(page []byte){
		"branch":      func(page []byte) { binary.NativeEndian.PutUint16(page[8:], 1) },
		"no kind":     func(page []byte) { binary.NativeEndian.PutUint16(page[8:], 0) },
		"count":       func(page []byte) { binary.NativeEndian.PutUint16(page[10:], 65535) },
		"empty place": func(page []byte) { clear(page[:16]) },
	} {
		for _, bucket := range [][]byte{disk.BucketSubscriptions, disk.BucketProgress, disk.BucketMeta} {
			t.Run(fmt.Sprintf("%s/%s", name, bucket), func(t *testing.T) {
				torn := bytes.Clone(whole)
				// The value of a bucket follows its name: root page 0, a sequence, the page.
				mark := append(bytes.Clone(bucket), make([]byte, 8)...)
				found := 0
				for rest := torn; ; found++ { // pages that are not in use any more have it too
					at := bytes.Index(rest, mark)
					if at < 0 {
						break
					}
					rest = rest[at+len(bucket)+16:]
					damage(rest)
				}
				if found == 0 {
					t.Fatal("it is not a small bucket")
				}
				if err := os.WriteFile(path, torn, bolt.FileMode); err != nil {
					t.Fatal(err)
				}
				th, err := engine.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				for call, fn := range map[string]func() error{
					"Info":      func() error { _, err := th.Info(ctx); return err },
					"Peek":      func() error { _, err := th.Peek(ctx, engine.Query{}); return err },
					"Push":      func() error { _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"}); return err },
					"Pop":       func() error { _, err := th.Pop(ctx, "c", engine.PopQuery{Limit: 1}); return err },
					"Ack":       func() error { return th.Ack(ctx, "c", 1) },
					"Subscribe": func() error { return th.Subscribe(ctx, engine.Subscription{Consumer: "d", Handler: "true"}) },
					"Compact":   func() error { _, err := th.Compact(ctx); return err },
					"Snapshot":  func() error { _, err := store.TakeSnapshot(ctx, storeOf(th)); return err },
				} {
					if err := fn(); !errors.Is(err, engine.ErrCorrupt) {
						t.Errorf("%s says %v", call, err)
					}
				}
			})
		}
	}
}
