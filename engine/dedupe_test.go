package engine

import (
	"fmt"
	"iter"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
	"thread/index"
	"thread/internal/store/bolt"
)

// keyModel is the oracle of dedupe keys: a map from key to its first event.
type keyModel struct {
	dir  string
	th   *Thread
	now  time.Time
	keys map[string]keptKey
	last int64
}

type keptKey struct {
	id     int64
	at     time.Time
	window time.Duration
	over   bool // its time was over once, so that it may be gone, whatever the clock shows now
}

func (m *keyModel) open(t *rapid.T) {
	var err error
	if m.th, err = Open(m.dir, WithClock(func() time.Time { return m.now })); err != nil {
		t.Fatal(err)
	}
	dirOf(m.th).MaxGroup = 40
}

func someKeyed(t *rapid.T, keys int) event.Draft {
	return event.Draft{Source: "s", Type: "t",
		DedupeKey:    rapid.SampledFrom([]string{"", "k", "ä\x00", "k2"}).Draw(t, "key") + fmt.Sprint(rapid.IntRange(0, keys).Draw(t, "n")),
		DedupeWindow: rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "window")}
}

// written marks the keys that a write at this time may delete.
func (m *keyModel) written() {
	for key, k := range m.keys {
		if m.now.Sub(k.at) >= k.window || k.at.Sub(m.now) > min(k.window, clockSkew) {
			k.over = true
			m.keys[key] = k
		}
	}
}

// push returns the id that d is to get, and whether it is an earlier event's. Where
// both are right, got decides.
func (m *keyModel) push(d *event.Draft, got int64) (int64, bool) {
	m.written()
	window := d.DedupeWindow
	if window == 0 {
		window = event.DefaultDedupeWindow
	}
	if k, ok := m.keys[d.DedupeKey]; ok && m.now.Sub(k.at) < min(window, k.window) && k.at.Sub(m.now) <= min(window, k.window, clockSkew) &&
		(!k.over || got == k.id) {
		return k.id, true
	}
	m.last++
	m.keys[d.DedupeKey] = keptKey{m.last, m.now, window, false}
	return m.last, false
}

func (m *keyModel) Push(t *rapid.T) {
	d := someKeyed(t, 3)
	e, err := m.th.Push(ctx, d)
	want, _ := m.push(&d, e.ID)
	if err != nil || e.ID != want || e.Source != "s" {
		t.Fatalf("got %+v, %v, want %d", e, err, want)
	}
}

// PushAll pushes a batch; beyond 40 drafts it is a long one.
func (m *keyModel) PushAll(t *rapid.T) {
	ds := make([]event.Draft, rapid.SampledFrom([]int{0, 1, 5, 39, 40, 41, 130}).Draw(t, "drafts"))
	for i := range ds {
		ds[i] = someKeyed(t, 60)
	}
	b, err := m.th.PushAll(ctx, sequence(ds))
	if err != nil || b.Count != int64(len(ds)) {
		t.Fatalf("got %+v, %v", b, err)
	}
	i := 0
	for id, duplicate := range b.IDs() {
		if want, again := m.push(&ds[i], id); id != want || duplicate != again {
			t.Fatalf("draft %d is event %d (duplicate %v), want %d (%v)", i, id, duplicate, want, again)
		}
		i++
	}
	if i != len(ds) {
		t.Fatalf("%d ids of %d drafts", i, len(ds))
	}
}

func (m *keyModel) PushBatch(t *rapid.T) {
	ds := make([]event.Draft, rapid.SampledFrom([]int{1, 30, 60}).Draw(t, "drafts"))
	for i := range ds {
		ds[i] = someKeyed(t, 20)
	}
	es, err := m.th.PushBatch(ctx, ds)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ds {
		if want, _ := m.push(&ds[i], es[i].ID); es[i].ID != want || es[i].CreatedAt == "" {
			t.Fatalf("draft %d is %+v, want %d", i, es[i], want)
		}
	}
}

// Cut leaves the beginning of a long batch behind, as a crash does: its keys must
// be as if they had never been.
func (m *keyModel) Cut(t *rapid.T) {
	ds := make([]event.Draft, 2*dirOf(m.th).MaxGroup)
	for i := range ds {
		ds[i] = someKeyed(t, 60)
	}
	cutBatch(t, m.th, ds)
	m.written()
}

// Forget takes a key away, also one that nothing has.
func (m *keyModel) Forget(t *rapid.T) {
	d := someKeyed(t, 20)
	m.written()
	if err := m.th.Update(ctx, func(tx *Tx) error { return tx.ForgetKey(d.DedupeKey) }); err != nil {
		t.Fatal(err)
	}
	delete(m.keys, d.DedupeKey)
	if err := m.th.View(ctx, func(tx *Tx) error { return tx.ForgetKey(d.DedupeKey) }); err != errReadOnly {
		t.Fatal(err)
	}
}

func (m *keyModel) Wait(t *rapid.T) {
	m.now = m.now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, 25 * time.Hour, -time.Second, -30 * time.Second, -time.Hour, -365 * 24 * time.Hour, 365 * 24 * time.Hour}).Draw(t, "wait"))
}

func (m *keyModel) Check(t *rapid.T) {
	err := m.th.View(ctx, func(tx *Tx) error {
		if tx.Head() != m.last {
			t.Fatalf("newest event is %d, want %d", tx.Head(), m.last)
		}
		keys, expiry := bolt.Raw(tx.s).Bucket(bucketDedupe), bolt.Raw(tx.s).Bucket(bucketDedupeExpiry)
		if keys == nil {
			return nil
		}
		if k, e := count(keys), count(expiry); k != e {
			t.Fatalf("%d keys and %d expiries", k, e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func count(b *index.Bucket) (n int) {
	b.ForEach(func(_, _ []byte) error { n++; return nil })
	return n
}

func sequence(ds []event.Draft) iter.Seq2[event.Draft, error] {
	return func(yield func(event.Draft, error) bool) {
		for _, d := range ds {
			if !yield(d, nil) {
				return
			}
		}
	}
}

func TestDedupeModel(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		m := &keyModel{dir: filepath.Join(base, fmt.Sprint(n)), now: time.UnixMilli(1773829800123), keys: map[string]keptKey{}}
		if _, err := Init(m.dir); err != nil {
			t.Fatal(err)
		}
		m.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"push": m.Push, "all": m.PushAll, "batch": m.PushBatch, "cut": m.Cut, "forget": m.Forget, "wait": m.Wait, "reopen": m.open, "": m.Check,
		})
	})
}

// Expired keys go by pushing alone, whether or not the pushes have keys, and
// the process that pushes.
func TestExpiredKeysAreSwept(t *testing.T) {
	plain := event.Draft{Source: "s", Type: "t"}
	for name, push := range map[string]func(th *Thread) error{
		"Push": func(th *Thread) error { _, err := th.Push(ctx, plain); return err },
		"Tx.Push": func(th *Thread) error {
			return th.Update(ctx, func(tx *Tx) error { _, err := tx.Push(plain); return err })
		},
		"a duplicate": func(th *Thread) error {
			d := plain
			d.DedupeKey = "new"
			return th.Update(ctx, func(tx *Tx) error { _, err := tx.Push(d); return err })
		},
		"PushAt": func(th *Thread) error { _, err := th.PushAt(ctx, plain, th.now()); return err },
		"a long batch": func(th *Thread) error {
			dirOf(th).MaxGroup = 2
			defer func() { dirOf(th).MaxGroup = bolt.MaxGroup }()
			_, err := th.PushBatch(ctx, []event.Draft{plain, plain, plain})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { expiredKeysAreSwept(t, push) })
	}
}

func expiredKeysAreSwept(t *testing.T, push func(th *Thread) error) {
	now := time.UnixMilli(1773829800123)
	th, err := Init(filepath.Join(t.TempDir(), "t"), WithClock(func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	ds := make([]event.Draft, 5*sweepAtLeast)
	for i := range ds {
		ds[i] = event.Draft{Source: "s", Type: "t", DedupeKey: fmt.Sprint(i), DedupeWindow: time.Hour}
	}
	if _, err := th.PushBatch(ctx, ds); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	later := event.Draft{Source: "s", Type: "t", DedupeKey: "new"}
	if _, err := th.Push(ctx, later); err != nil {
		t.Fatal(err)
	}
	for left, last := len(ds), len(ds)+1; left > 1; last = left {
		if err := push(th); err != nil {
			t.Fatal(err)
		}
		err := th.View(ctx, func(tx *Tx) error {
			left = count(bolt.Raw(tx.s).Bucket(bucketDedupe))
			if left > max(1, last-sweepAtLeast) || left < 1 || count(bolt.Raw(tx.s).Bucket(bucketDedupeExpiry)) != left {
				t.Fatalf("%d keys are left of %d", left, last)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
