package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

// putPieces stores a large content and returns its checksum. bbolt keeps the
// content until the commit.
func putPieces(b *index.Bucket, id int64, content string) (sum uint32, err error) {
	rest := unsafe.Slice(unsafe.StringData(content), len(content))
	keys := make([]byte, 0, (len(rest)+disk.PieceBytes-1)/disk.PieceBytes*disk.PieceKeyBytes)
	for n := uint32(0); len(rest) > 0; n++ {
		piece := rest[:min(len(rest), disk.PieceBytes)]
		rest = rest[len(piece):]
		start := len(keys)
		keys = binary.BigEndian.AppendUint64(keys, uint64(id))
		keys = binary.BigEndian.AppendUint32(keys, n)
		crc := index.Sum(keys[start:], piece)
		keys = binary.BigEndian.AppendUint32(keys, crc)
		sum = disk.NextSum(sum, crc)
		if err := b.Put(keys[start:len(keys):len(keys)], piece); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// eachPiece calls fn for the pieces of event id, which has some. Unless all are
// there and fit, it returns an error in the end.
func (tx *Tx) eachPiece(id int64, r *disk.Record, fn func(k, v []byte) error) error {
	bad := fmt.Errorf("%w: content of event %d", store.ErrCorrupt, id)
	b, err := tx.bucket(disk.BucketPieces)
	if err != nil {
		return err
	}
	if b == nil {
		return bad
	}
	a := disk.Assembly{Size: r.Size, Want: r.Sum}
	err = index.Range(b, disk.EventKey(id), func(k, v []byte) (bool, error) {
		at, n, crc, ok := disk.SplitPieceKey(k, v)
		if !ok || at != id || !a.Add(n, crc, len(v)) {
			return false, bad
		}
		return a.Have < a.Size, fn(k, v)
	})
	if err == nil && !a.Whole() {
		err = bad
	}
	return err
}

// content returns the content of event id: for a large one in separate memory,
// else in the database's pages. The length comes from a record whose checksum fits.
func (tx *Tx) content(id int64, r *disk.Record) ([]byte, error) {
	if !r.Pieces {
		return r.Content, nil
	}
	content := make([]byte, 0, r.Size)
	err := tx.eachPiece(id, r, func(_, v []byte) error {
		content = append(content, v...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return content, nil
}

// snapshot is a store.Snapshot that is being made.
type snapshot struct{ store.Snapshot }

// Snapshot implements store.Whole.
func (t *Store) Snapshot(ctx context.Context) (store.Snapshot, error) {
	var s snapshot
	err := t.read(ctx, func(tx *Tx) error {
		s = snapshot{store.Snapshot{Head: tx.st.Head, LastID: tx.st.LastID, Stored: tx.st.Stored, Pruned: tx.st.Count - tx.st.Stored}}
		oldest, err := tx.Oldest()
		if err != nil {
			return err
		}
		if s.Floor = s.Head; oldest > 0 {
			s.Floor = oldest - 1
		}
		var subs []*store.Subscription
		err = tx.Ascend(store.Subscriptions, nil, func(k, v []byte) (bool, error) {
			sub, err := store.DecodeSubscription(k, v)
			subs = append(subs, sub)
			return true, err
		})
		if err != nil {
			return err
		}
		store.SortSubscriptions(subs)
		for _, sub := range subs {
			s.Subscriptions = append(s.Subscriptions, *sub)
		}
		progress, err := tx.table(store.Progress)
		if err != nil {
			return err
		}
		if err := index.CheckTree(progress); err != nil {
			return err
		}
		err = progress.ForEach(func(k, v []byte) error {
			p, err := store.DecodeProgress(k, v)
			if err != nil || len(k) == 0 {
				return errors.Join(err, store.ErrCorrupt)
			}
			s.Progress = append(s.Progress, store.ConsumerProgress{Consumer: string(k[1:]), ProgressRecord: p})
			return nil
		})
		if err != nil {
			return err
		}
		names, err := index.BucketNames(tx.b, tx.over)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !extra(name) {
				continue
			}
			b, err := tx.bucket([]byte(name))
			if err != nil {
				return err
			}
			if err := s.addExtras([]string{name}, b); err != nil {
				return err
			}
		}
		return nil
	})
	return s.Snapshot, err
}

// extra reports whether Snapshot and Restore carry a bucket as it is.
func extra(name string) bool {
	t := store.Table(name)
	return name != "" && !store.Essential(t) && t != store.Checked && t != store.Pieces
}

func (s *snapshot) addExtras(path []string, b *index.Bucket) error {
	if err := index.CheckTree(b); err != nil {
		return err
	}
	s.Extras = append(s.Extras, store.Extra{Bucket: path, Sequence: b.Sequence()})
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			return s.addExtras(append(path[:len(path):len(path)], string(k)), b.Nested(k))
		}
		s.Extras = append(s.Extras, store.Extra{Bucket: path, Key: append([]byte{}, k...), Value: append([]byte{}, v...)})
		return nil
	})
}
