package engine

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"thread/lock"
)

// TestFoldedConsumers: where a file system does not tell upper case from lower
// case, no two consumers can be subscribed that would share a lock.
func TestFoldedConsumers(t *testing.T) {
	th, err := Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	subscribe := func(consumer string) error {
		return th.Subscribe(ctx, Subscription{Consumer: consumer, Handler: "true"})
	}
	t.Cleanup(func() { foldsCase = lock.FoldsCase })
	for _, folds := range []bool{true, false} {
		foldsCase = func(string) bool { return folds }
		for _, consumer := range []string{"orders", "Mail", "orders/new"} {
			if err := subscribe(consumer); folds && err != nil || !folds && !errors.Is(err, ErrSubscriptionExists) {
				t.Errorf("%q, %v: %v", consumer, folds, err)
			}
		}
		for _, consumer := range []string{"Orders", "mail", "ORDERS/new"} {
			switch err := subscribe(consumer); {
			case folds && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "case")):
				t.Errorf("%q: %v", consumer, err)
			case !folds && err != nil:
				t.Errorf("%q: %v", consumer, err)
			}
		}
	}
	if err := th.Unsubscribe(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	// What two consumers had before stays, and one of them can be replaced.
	foldsCase = func(string) bool { return true }
	err = th.Update(ctx, func(tx *Tx) error {
		return tx.Replace("Mail", func(s *Subscription) { s.Handler = "false" })
	})
	if err != nil {
		t.Error(err)
	}
}
