package journal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

// tornBytes is what a loss of power spoils: the whole page in which a write was under way.
const tornBytes = 4096

// model is the journal and the database of one thread, as programs see them and as a
// loss of power leaves them. A commit of the database is one step that is durable or not.
type model struct {
	cached, durable []byte // the journal
	base, synced    Base   // of the database, in the same way
	folded, kept    int    // how many of events the pages have, in the same way

	events  []byte // every event that is stored, by its number
	acked   int    // how many of them were acknowledged
	settled bool   // the mark vouches for the last record
	pending int64  // the place of the write that is not synced, -1 for none
	end     int64
	next    byte
	salt    uint64
}

// clone returns a copy of m.
func (m *model) clone() *model {
	c := *m
	c.cached, c.durable = bytes.Clone(m.cached), bytes.Clone(m.durable)
	c.events = bytes.Clone(m.events)
	return &c
}

// modelBytes is the part of the file that a short model uses.
const modelBytes = 48 << 10

// file puts what programs see into f and opens it.
func (m *model) file(f *os.File) (j *File, seen []byte, err error) {
	if _, err := f.WriteAt(m.cached, 0); err != nil {
		return nil, nil, err
	}
	j, seen = New(f, m.base), bytes.Clone(m.events[:m.folded])
	err = j.Read(false, func(changes []byte) error {
		if !bytes.Equal(changes, bytes.Repeat(changes[:1], len(changes))) {
			changes = []byte{0} // no event
		}
		seen = append(seen, changes[0])
		return nil
	})
	return j, seen, err
}

// look reads as every command does. It returns an error where an acknowledged event is
// missing or an event is there that was never pushed.
func (m *model) look(f *os.File) (j *File, err error) {
	j, seen, err := m.file(f)
	if err != nil {
		return nil, err
	}
	if len(seen) < m.acked || len(seen) > len(m.events) || !bytes.Equal(seen, m.events[:len(seen)]) {
		return nil, fmt.Errorf("%v are read, %v stored, %d acknowledged", seen, m.events, m.acked)
	}
	m.events = m.events[:len(seen)] // a record that did not reach the disk is free again
	return j, nil
}

// settle does what a writer does first.
func (m *model) settle(f *os.File, j *File) error {
	if m.settled {
		return nil
	}
	m.synced, m.kept = m.base, m.folded
	err := j.Settle()
	m.take(f)
	m.sync()
	return err
}

// take keeps what f holds as what programs see.
func (m *model) take(f *os.File) {
	if _, err := f.ReadAt(m.cached, 0); err != nil {
		panic(err)
	}
}

func (m *model) sync() {
	copy(m.durable, m.cached)
	m.pending, m.settled, m.acked = -1, true, len(m.events)
}

// append writes a record of n bytes. It is killed before its sync unless synced.
func (m *model) append(f *os.File, n int, synced bool) error {
	j, err := m.look(f)
	if err != nil {
		return err
	}
	if err := m.settle(f, j); err != nil {
		return err
	}
	m.next++
	m.pending = int64(j.slot) * SlotBytes
	m.settled = false
	if _, err := j.Append(bytes.Repeat([]byte{m.next}, n)); err != nil {
		return err
	}
	m.take(f)
	m.end = m.pending + int64(headerBytes+n)
	m.events = append(m.events, m.next)
	if synced {
		m.sync()
	}
	return nil
}

// fold puts all records into the pages. It is killed before its last sync unless synced.
func (m *model) fold(f *os.File, synced bool) error {
	j, err := m.look(f)
	if err != nil {
		return err
	}
	if err := m.settle(f, j); err != nil {
		return err
	}
	m.salt++
	m.base, m.folded = Base{m.base.Epoch + 1, m.salt}, len(m.events)
	m.settled = synced
	if synced {
		m.synced, m.kept = m.base, m.folded
	}
	return nil
}

// lose cuts the power. Of what was not synced, each sector for which keep returns true is
// on the disk, and the page of the write is spoiled where torn is set.
func (m *model) lose(r *rand.Rand, keep func() bool, torn bool) {
	if m.pending >= 0 {
		first, end := m.pending/tornBytes*tornBytes, (m.end+tornBytes-1)/tornBytes*tornBytes
		for at := first; at < end; at += sectorBytes {
			if keep() {
				copy(m.durable[at:at+sectorBytes], m.cached[at:])
			}
		}
		if torn {
			at := first + int64(r.IntN(int((end-first)/tornBytes)))*tornBytes
			for i := range tornBytes {
				m.durable[at+int64(i)] = byte(r.Uint32())
			}
		}
	}
	copy(m.cached, m.durable)
	if keep() {
		m.synced, m.kept = m.base, m.folded
	}
	m.base, m.folded = m.synced, m.kept
	m.pending, m.settled = -1, false
}

// TestModel tries every sequence of appends, folds, kills and losses of power up to a
// length, and the states that each loss can leave. After each step a reader finds every
// acknowledged event in order, and nothing that was not pushed.
func TestModel(t *testing.T) {
	f := open(t)
	states := 0
	all, none := func() bool { return true }, func() bool { return false }
	short, long := 40, 5000
	steps := []struct {
		name string
		do   func(m *model, r *rand.Rand) error
	}{
		{"append", func(m *model, _ *rand.Rand) error { return m.append(f, short, true) }},
		{"append of two slots", func(m *model, _ *rand.Rand) error { return m.append(f, long, true) }},
		{"append killed", func(m *model, _ *rand.Rand) error { return m.append(f, short, false) }},
		{"append of two slots killed", func(m *model, _ *rand.Rand) error { return m.append(f, long, false) }},
		{"fold", func(m *model, _ *rand.Rand) error { return m.fold(f, true) }},
		{"fold killed", func(m *model, _ *rand.Rand) error { return m.fold(f, false) }},
		{"loss of all", func(m *model, r *rand.Rand) error { m.lose(r, none, false); return nil }},
		{"loss of nothing", func(m *model, r *rand.Rand) error { m.lose(r, all, false); return nil }},
		{"loss of some", func(m *model, r *rand.Rand) error {
			m.lose(r, func() bool { return r.IntN(2) == 0 }, false)
			return nil
		}},
		{"loss of a page", func(m *model, r *rand.Rand) error { m.lose(r, all, true); return nil }},
	}
	length := 4
	if os.Getenv("THREAD_CRASH") == "full" {
		length = 5
	}
	var try func(m *model, path []string)
	try = func(m *model, path []string) {
		states++
		if _, err := m.look(f); err != nil {
			t.Fatalf("%q: %v", path, err)
		}
		if len(path) == length {
			return
		}
		for i, step := range steps {
			c, r := m.clone(), rand.New(rand.NewPCG(uint64(states), uint64(i)))
			path := append(path[:len(path):len(path)], step.name)
			if err := step.do(c, r); err != nil {
				t.Fatalf("%q: %v", path, err)
			}
			try(c, path)
		}
	}
	base := Base{1, 1}
	try(&model{cached: make([]byte, modelBytes), durable: make([]byte, modelBytes), base: base, synced: base, salt: 1, settled: true, pending: -1}, nil)
	t.Logf("%d states", states)
}
