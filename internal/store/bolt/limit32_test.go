package bolt_test

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// TestLimitOf32Bit: where a pointer has 32 bits a database ends at 1 GiB, the
// largest that bbolt maps there. A push that needs more is refused and changes
// nothing, what is stored can be read, and a larger file is not opened.
func TestLimitOf32Bit(t *testing.T) {
	if math.MaxInt > math.MaxInt32 {
		t.Skip("a host of 64 bits")
	}
	const most = 1 << 30
	dir := t.TempDir()
	th, err := engine.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	first := event.Draft{Source: "a", Type: "b", Content: "c"}
	if _, err := th.Push(ctx, first); err != nil {
		t.Fatal(err)
	}
	if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, bolt.DatabaseName)
	// bbolt asks for growBytes more than it needs. Into what is left go a part of a long
	// batch, and not a large event.
	setPages(t, path, (most-bolt.GrowBytes)/disk.PageBytes-300)
	if err := os.Truncate(path, most); err != nil { // without a separate block on disk
		t.Fatal(err)
	}

	large := event.Draft{Source: "a", Type: "b", Content: strings.Repeat("x", 4<<20)}
	if _, err := th.Push(ctx, large); !errors.Is(err, engine.ErrTooLarge) {
		t.Errorf("a push over the limit: %v, want ErrTooLarge", err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != most {
		t.Errorf("the refused push left %d bytes: %v", info.Size(), err)
	}
	if es, err := th.Peek(ctx, engine.Query{}); err != nil || len(es) != 1 || es[0].Content != "c" {
		t.Errorf("after it: %d events, %v", len(es), err)
	}
	if lines, err := os.ReadFile(filepath.Join(dir, "events.jsonl")); err != nil || strings.Count(string(lines), "\n") != 1 {
		t.Errorf("events.jsonl has %d lines: %v", strings.Count(string(lines), "\n"), err)
	}

	// Pages that are free are still given out, so that the consumer can continue.
	if err := th.Ack(ctx, "c", 1); err != nil {
		t.Errorf("an ack in a full database: %v", err)
	}
	filler := first
	filler.Content = strings.Repeat("x", 200)
	long := func(yield func(event.Draft, error) bool) {
		for range 6 * dirOf(th).MaxGroup {
			if !yield(filler, nil) {
				return
			}
		}
	}
	if _, err := th.PushAll(ctx, long); !errors.Is(err, engine.ErrTooLarge) {
		t.Errorf("a long batch over the limit: %v, want ErrTooLarge", err)
	}
	if err := th.Ack(ctx, "c", 1); err != nil {
		t.Errorf("an ack after it: %v", err)
	}
	if e, err := th.Push(ctx, first); err != nil || e.ID != 2 {
		t.Errorf("a push into the pages of the batch: %v, %v", e, err)
	}
	if es, err := th.Peek(ctx, engine.Query{}); err != nil || len(es) != 2 {
		t.Errorf("after it: %d events, %v", len(es), err)
	}

	if err := os.Truncate(path, most+disk.PageBytes); err != nil {
		t.Fatal(err)
	}
	if _, err := th.Peek(ctx, engine.Query{}); !errors.Is(err, engine.ErrTooLarge) {
		t.Errorf("a larger file: %v, want ErrTooLarge", err)
	}
}

// setPages writes into both meta pages that that many pages are in use.
func setPages(t *testing.T, path string, pages uint64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{disk.PageHeaderBytes, disk.PageBytes + disk.PageHeaderBytes} {
		var b [disk.MetaBytes]byte
		if _, err := f.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		binary.NativeEndian.PutUint64(b[40:], pages)
		sum := fnv.New64a()
		sum.Write(b[:disk.BoltMetaSummed])
		binary.NativeEndian.PutUint64(b[disk.BoltMetaSummed:], sum.Sum64())
		if _, err := f.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
	}
}
