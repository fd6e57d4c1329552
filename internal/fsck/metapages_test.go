package fsck

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// threeEvents makes a thread whose last change is change, and returns its
// directory and database.
func threeEvents(t *testing.T, change func(th *engine.Thread) error) (dir string, db []byte) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "inbox")
	th, err := engine.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(change(th), bolt.Fold(ctx, storeOf(th))); err != nil {
		t.Fatal(err)
	}
	db, err = os.ReadFile(filepath.Join(dir, bolt.DatabaseName))
	if err != nil {
		t.Fatal(err)
	}
	return dir, db
}

func pushFourth(th *engine.Thread) error {
	_, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "the last one"})
	return err
}

// newerMeta returns which meta page holds the present state.
func newerMeta(t *testing.T, db []byte) int {
	t.Helper()
	two := disk.ReadMetas(bytes.NewReader(db))
	if err := two.Fault(); err != nil {
		t.Fatal(err)
	}
	if two.Metas[0].Txid > two.Metas[1].Txid {
		return 0
	}
	return 1
}

// TestDamagedMetaPage flips every bit of what bbolt reads of a meta page, of the
// newer and of the older one. No process goes back by a change silently: reads and
// writes are refused, check names it, and repair saves every event.
func TestDamagedMetaPage(t *testing.T) {
	dir, db := threeEvents(t, pushFourth)
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, bolt.DatabaseName)
	for metaPage := range 2 {
		for bit := range disk.MetaBytes * 8 {
			spoiled := bytes.Clone(db)
			spoiled[metaPage*disk.PageBytes+disk.PageHeaderBytes+bit/8] ^= 1 << (bit % 8)
			if err := os.WriteFile(path, spoiled, bolt.FileMode); err != nil {
				t.Fatal(err)
			}
			if _, err := th.Info(ctx); !errors.Is(err, engine.ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprintf("meta page %d", metaPage)) {
				t.Fatalf("meta page %d, bit %d: a read says %v", metaPage, bit, err)
			}
			if err := pushFourth(th); !errors.Is(err, engine.ErrCorrupt) {
				t.Fatalf("meta page %d, bit %d: a push says %v", metaPage, bit, err)
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, spoiled) {
				t.Fatalf("meta page %d, bit %d: the file was changed (%v)", metaPage, bit, err)
			}
			if bit%64 != 0 {
				continue
			}
			report, err := Check(ctx, th)
			if err != nil || len(report.Faults) == 0 || report.Faults[0].Place != "meta pages" {
				t.Fatalf("meta page %d, bit %d: check says %v, %v", metaPage, bit, report, err)
			}
			saved, err := Repair(ctx, dir, filepath.Join(t.TempDir(), "new"))
			if err != nil || saved.Saved != 4 || len(saved.Lost) > 0 || len(saved.Problems) == 0 {
				t.Fatalf("meta page %d, bit %d: repair says %+v, %v", metaPage, bit, saved, err)
			}
		}
	}
}

// TestDamagedMetaPageAfterOtherChanges: a lost subscription, of which no line
// tells, is not lost silently either.
func TestDamagedMetaPageAfterOtherChanges(t *testing.T) {
	dir, db := threeEvents(t, func(th *engine.Thread) error {
		return th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"})
	})
	at := newerMeta(t, db) * disk.PageBytes
	clear(db[at : at+disk.PageBytes])
	if err := os.WriteFile(filepath.Join(dir, bolt.DatabaseName), db, bolt.FileMode); err != nil {
		t.Fatal(err)
	}
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := th.Info(ctx); !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("info says %v", err)
	}
	saved, err := Repair(ctx, dir, filepath.Join(t.TempDir(), "new"))
	if err != nil || saved.Subscriptions != 1 || len(saved.Problems) == 0 {
		t.Errorf("repair says %+v, %v", saved, err)
	}
}

// TestOldMetaPage: a meta page that is whole, but from another time.
func TestOldMetaPage(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(db, first []byte, newer int)
	}{
		{"copy of the other", func(db, _ []byte, newer int) {
			copy(db[newer*disk.PageBytes:], db[(1-newer)*disk.PageBytes:(2-newer)*disk.PageBytes])
		}},
		{"older one older", func(db, first []byte, newer int) {
			at := (1 - newer) * disk.PageBytes
			copy(db[at:at+disk.PageBytes], first[at:])
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var first []byte
			dir, db := threeEvents(t, func(th *engine.Thread) (err error) {
				if first, err = os.ReadFile(storeOf(th).Path(bolt.DatabaseName)); err != nil {
					return err
				}
				for range 4 {
					if err := errors.Join(pushFourth(th), bolt.Fold(ctx, storeOf(th))); err != nil {
						return err
					}
				}
				return nil
			})
			tt.do(db, first, newerMeta(t, db))
			if err := os.WriteFile(filepath.Join(dir, bolt.DatabaseName), db, bolt.FileMode); err != nil {
				t.Fatal(err)
			}
			th, err := engine.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := pushFourth(th); !errors.Is(err, engine.ErrCorrupt) {
				t.Errorf("a push says %v", err)
			}
		})
	}
}

// TestCopyByBolt: a backup that was made with bbolt's own means is sound, whatever
// transaction it was made at, and so is what the next pushes make of it.
func TestCopyByBolt(t *testing.T) {
	for extra := range 2 {
		dir, _ := threeEvents(t, func(th *engine.Thread) error {
			for range extra {
				if err := pushFourth(th); err != nil {
					return err
				}
			}
			return nil
		})
		copied := filepath.Join(t.TempDir(), "copy")
		th, err := engine.Init(copied)
		if err != nil {
			t.Fatal(err)
		}
		of, err := engine.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		db, err := bolt.OpenRaw(ctx, storeOf(of))
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(filepath.Join(copied, bolt.DatabaseName), bolt.FileMode) })
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		if err := pushFourth(th); !errors.Is(err, engine.ErrCorrupt) {
			t.Errorf("a push without the journal: %v", err)
		}
		log, err := os.ReadFile(filepath.Join(dir, bolt.JournalName))
		if err == nil {
			err = os.WriteFile(filepath.Join(copied, bolt.JournalName), log, bolt.FileMode)
		}
		if err != nil {
			t.Fatal(err)
		}
		for n := range 4 {
			if err := pushFourth(th); err != nil {
				t.Errorf("copy after %d more, push %d: %v", extra, n, err)
			}
		}
		report, err := Check(ctx, th)
		if err != nil || len(report.Faults) > 0 {
			t.Errorf("check says %+v, %v", report, err)
		}
	}
}
