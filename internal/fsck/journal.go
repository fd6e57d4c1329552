package fsck

import (
	"bytes"
	"encoding/binary"
	"sort"

	"thread/index"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// changes are what the journal adds to the pages of a database, by bucket.
type changes map[string]*index.Changed

// readChanges reads the journal of s over the pages below the buckets. Record is the
// journal record of bucket meta. With an error it returns what could be read.
func readChanges(j *bolt.Journal, s *bolt.Store, record []byte, w *disk.TreeWalk, buckets map[string][]byte) (changes, error) {
	all, err := j.Read(s, record, storedIn(w, buckets))
	return byName(all), err
}

func storedIn(w *disk.TreeWalk, buckets map[string][]byte) func(name, key []byte) ([]byte, error) {
	return func(name, key []byte) ([]byte, error) { return w.Get(buckets[string(name)], key), nil }
}

func byName(all []index.Changed) changes {
	of := changes{}
	for i := range all {
		of[string(all[i].Name)] = &all[i]
	}
	return of
}

// add completes the list of the buckets with those that only the journal has.
func (of changes) add(buckets map[string][]byte, names []string) []string {
	for name, c := range of {
		if c.Made && buckets[name] == nil {
			buckets[name] = disk.EmptyBucket()
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// sequence returns the number of the bucket whose value is head.
func (of changes) sequence(name string, head []byte) uint64 {
	if c := of[name]; c != nil && c.Sequence != nil {
		return *c.Sequence
	} else if c != nil && c.Dropped {
		return 0
	}
	return binary.NativeEndian.Uint64(head[8:])
}

// merge passes the entries of a bucket on to fn with what the journal changes in them.
type merge struct {
	keys    []index.ChangedKey // still to come
	dropped bool
	fn      func(e *disk.Element)
}

// merge returns the merge of a bucket, for the entries behind the key after.
func (of changes) merge(name string, after []byte, fn func(e *disk.Element)) *merge {
	m := &merge{fn: fn}
	if c := of[name]; c != nil {
		m.keys, m.dropped = c.Keys, c.Dropped
		for after != nil && len(m.keys) > 0 && bytes.Compare(m.keys[0].Key, after) <= 0 {
			m.keys = m.keys[1:]
		}
	}
	return m
}

// stored takes an entry of the pages.
func (m *merge) stored(e *disk.Element) {
	for len(m.keys) > 0 && bytes.Compare(m.keys[0].Key, e.Key) < 0 {
		m.next()
	}
	switch {
	case len(m.keys) > 0 && bytes.Equal(m.keys[0].Key, e.Key):
		m.next()
	case !m.dropped:
		m.fn(e)
	}
}

// rest passes on what comes behind the last entry of the pages.
func (m *merge) rest() {
	for len(m.keys) > 0 {
		m.next()
	}
}

func (m *merge) next() {
	if k := m.keys[0]; k.Value != nil {
		m.fn(&disk.Element{Key: k.Key, Value: k.Value})
	}
	m.keys = m.keys[1:]
}
