package bolt

import (
	"bytes"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

// records makes the buckets whose entries change, and the buckets of others, in the copy what
// they are now, as far as a slice goes: what changes later is for changeable, which finds
// little to write then. Buckets in buckets are left to it.
func (c *copying) records() (more bool, err error) {
	err = c.eachChangeable(c.record.bucket, func(name []byte, from *index.Bucket) (bool, error) {
		if !bytes.Equal(name, c.record.bucket) {
			c.record.key = nil
		}
		next, err := c.merge([][]byte{name}, from, c.record.key, true)
		if err != nil {
			return false, err
		}
		c.record = recordsAt{bytes.Clone(name), next}
		if more = next != nil; !more {
			c.record.bucket = append(c.record.bucket, 0)
			more = c.over()
		}
		return !more, nil
	})
	return more, err
}

// changeable makes all of them what they are, under the exclusive lock.
func (c *copying) changeable() error {
	seen := map[string]bool{}
	err := c.eachChangeable(nil, func(name []byte, from *index.Bucket) (bool, error) {
		seen[string(name)] = true
		_, err := c.merge([][]byte{name}, from, nil, false)
		return true, err
	})
	if err != nil {
		return err
	}
	for _, name := range []([]byte){disk.BucketEvents, disk.BucketSeries, disk.BucketColumns} {
		from, err := c.from.bucket(name)
		if err != nil || from == nil {
			return err
		}
		to, err := c.open([][]byte{name})
		if err != nil {
			return err
		}
		if err = to.SetSequence(from.Sequence()); err != nil {
			return err
		}
	}
	var gone [][]byte
	err = c.tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if changes(name) && !seen[string(name)] {
			gone = append(gone, bytes.Clone(name))
		}
		return nil
	})
	for _, name := range gone {
		err = errors.Join(err, index.DropBucket(c.tx, nil, name))
	}
	return err
}

// changes reports whether a bucket has entries that are not there for good.
func changes(name []byte) bool {
	switch string(name) {
	case string(disk.BucketPieces), string(disk.BucketSeriesByID), string(disk.BucketTypes), string(disk.BucketTypeBlocks),
		string(disk.BucketEvents), string(disk.BucketSeries), string(disk.BucketColumns):
		return false
	}
	return true
}

// eachChangeable calls fn for those buckets of the source, from one on, until it returns false.
func (c *copying) eachChangeable(from []byte, fn func(name []byte, b *index.Bucket) (bool, error)) error {
	names, err := index.BucketNames(c.from.b, c.from.over)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name < string(from) || !changes([]byte(name)) {
			continue
		}
		b, err := c.from.bucket([]byte(name))
		if err != nil {
			return err
		}
		if more, err := fn([]byte(name), b); err != nil || !more {
			return err
		}
	}
	return nil
}

// An edit of an entry of the copy; its value is nil where it is to be deleted.
type edit struct{ key, value []byte }

// merge makes a bucket of the copy what the source's bucket is, from a key on. In a slice it
// may stop, and returns the key to continue from; it leaves out buckets in the bucket then.
func (c *copying) merge(path [][]byte, from *index.Bucket, start []byte, slice bool) (next []byte, err error) {
	if slice {
		err = index.CheckPath(from, start) // the whole tree for each slice would take too long
	} else {
		err = index.CheckTree(from)
	}
	if err != nil {
		return nil, err
	}
	to, err := c.open(path)
	if err != nil {
		return nil, err
	}
	if to.Sequence() != from.Sequence() {
		if err := to.SetSequence(from.Sequence()); err != nil {
			return nil, err
		}
	}
	for {
		edits, nested, next, err := c.differing(path, from, to, start, slice)
		if err != nil {
			return next, err
		}
		if err := c.apply(edits, to); err != nil {
			return next, err
		}
		for _, name := range nested {
			if to.Get(name) != nil {
				if err := to.Delete(name); err != nil {
					return next, err
				}
			}
			if _, err := c.merge(append(path[:len(path):len(path)], name), from.Nested(name), nil, false); err != nil {
				return next, err
			}
		}
		if slice || next == nil {
			return next, nil
		}
		start = next
		if c.size >= maxGroupBytes/4 && len(path) == 1 {
			if err := c.next(); err != nil {
				return nil, err
			}
			if to, err = c.open(path); err != nil {
				return nil, err
			}
		}
	}
}

// syncCopy is exchanged by tests.
var syncCopy = (*bbolt.DB).Sync

// next commits the present transaction and begins another, so that a large
// database needs little memory.
func (c *copying) next() (err error) {
	if err := c.commit(); err != nil {
		return err
	}
	if !c.locked {
		// Little by little: pushes sync to the same disk, and would wait for a long sync.
		if err := syncCopy(c.db); err != nil {
			return err
		}
	}
	if err := disk.CheckSizeOf(c.db.Path()); err != nil {
		return err
	}
	return c.begin()
}

func (c *copying) commit() error {
	if err := c.groups.flush(); err != nil {
		return err
	}
	err := c.tx.Commit()
	c.tx = nil // after a panic in bbolt it is still to be rolled back
	return err
}

// apply makes edits in a bucket of the copy.
func (c *copying) apply(edits []edit, to *index.Bucket) (err error) {
	for _, e := range edits {
		if to.Nested(e.key) != nil {
			err = to.Stored().DeleteBucket(e.key)
		} else if e.value == nil {
			err = to.Delete(e.key)
		}
		if err == nil && e.value != nil {
			err = to.Put(e.key, e.value)
		}
		if err != nil {
			return err
		}
		c.size += len(e.key) + len(e.value)
	}
	return nil
}

// differing returns some edits, which buckets there are among the entries, and the key to
// continue from, nil at the end.
func (c *copying) differing(path [][]byte, from, to *index.Bucket, start []byte, slice bool) (edits []edit, nested [][]byte, next []byte, err error) {
	at, has := from.Cursor(), to.Cursor()
	k, v := at.Seek(start)
	tk, tv := has.Seek(start)
	if start == nil {
		k, v = at.First()
		tk, tv = has.First()
	}
	for bytesFound := 0; k != nil || tk != nil; {
		if c.n++; c.n%endedEvery == 0 {
			if err := c.from.ended(); err != nil {
				return nil, nil, nil, err
			}
		}
		order := bytes.Compare(k, tk)
		switch {
		case k == nil || tk != nil && order > 0:
			if !c.own(path, tk) && (tv != nil || !slice) {
				edits = append(edits, edit{key: bytes.Clone(tk)})
			}
			tk, tv = has.Next()
			continue
		case c.own(path, k):
		case v == nil:
			if !slice {
				nested = append(nested, bytes.Clone(k))
			}
		case tk == nil || order < 0 || tv == nil || !bytes.Equal(v, tv):
			edits = append(edits, edit{bytes.Clone(k), append([]byte{}, v...)})
			bytesFound += len(k) + len(v)
		}
		last := bytes.Clone(k)
		if tk != nil && order == 0 {
			tk, tv = has.Next()
		}
		if k, v = at.Next(); k != nil && bytes.Compare(k, last) <= 0 {
			return nil, nil, nil, fmt.Errorf("%w: bucket %q is out of order", store.ErrCorrupt, path[0])
		}
		if bytesFound >= maxGroupBytes/16 || slice && c.over() {
			return edits, nested, append(last, 0), nil
		}
	}
	return edits, nested, nil, nil
}

// own reports whether an entry of the copy is its own.
func (c *copying) own(path [][]byte, key []byte) bool {
	return len(path) == 1 && bytes.Equal(path[0], disk.BucketMeta) && (bytes.Equal(key, disk.KeySeries) || bytes.Equal(key, disk.KeyJournal))
}
