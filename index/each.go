package index

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// maxFew is up to how many series Each keeps for the next time.
const maxFew = 1 << 12

// seriesEntry is a series with its id.
type seriesEntry struct {
	id uint32
	SeriesView
}

// Each calls fn for the series with ids in [from, upto], in order, until it
// returns false or an error. Where there are few, a second call in a read
// transaction costs next to nothing: thousands of filters are asked in one.
func (d *Dictionary) Each(from, upto uint32, fn func(id uint32, v *SeriesView) (more bool, err error)) error {
	byID, err := d.byID.bucket()
	if err != nil {
		return err
	}
	if d.few == nil && !byID.Writable() {
		if n, err := d.Len(); err != nil {
			return err
		} else if n <= maxFew {
			few := make([]seriesEntry, 0, n)
			err := d.each(0, 1<<32-1, func(id uint32, v *SeriesView) (bool, error) {
				few = append(few, seriesEntry{id, *v})
				return true, nil
			})
			if err != nil {
				return err
			}
			d.few = few
		}
	}
	if d.few == nil {
		return d.each(from, upto, fn)
	}
	at := sort.Search(len(d.few), func(i int) bool { return d.few[i].id >= from })
	for ; at < len(d.few) && d.few[at].id <= upto; at++ {
		if more, err := fn(d.few[at].id, &d.few[at].SeriesView); err != nil || !more {
			return err
		}
	}
	return nil
}

func (d *Dictionary) each(from, upto uint32, fn func(id uint32, v *SeriesView) (more bool, err error)) error {
	byID, err := d.byID.bucket()
	if err != nil {
		return err
	}
	return Range(byID, seriesID(from), func(k, value []byte) (bool, error) {
		if len(k) != 4 {
			return false, fmt.Errorf("%w: series id of %d bytes", ErrDamaged, len(k))
		}
		id := binary.BigEndian.Uint32(k)
		if id > upto {
			return false, nil
		}
		v, err := ViewSeries(id, value)
		if err != nil {
			return false, err
		}
		return fn(id, &v)
	})
}
