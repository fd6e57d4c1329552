package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
)

// Dictionary looks series up and adds them. It is for one transaction.
type Dictionary struct {
	byKey, byID lazy
	known       *Known
	ids         map[triple]uint32 // found or added
	fresh       *Fresh
	near        leafView
	few         []seriesEntry // all of them, where Each was called and they are few
	types       *typeTable
	written     bool // to byKey, in this transaction
}

// triple is a Series as the key of a map.
type triple struct {
	source, typ, subtype string
	hasSubtype           bool
}

// Fresh holds the series that a batch has added and that have no key in bucket
// series yet. Keys that come in no order cost a page each, so they wait and are put
// in their order, for a long batch the keys of many transactions at once.
type Fresh struct {
	ids map[triple]uint32
}

// NewDictionary reads the buckets series, series_by_id, types and type_blocks, which these
// open. Meta is the bucket of that name.
func NewDictionary(byKey, byID func() (*Bucket, error), meta *Bucket, types, blocks func() (*Bucket, error)) *Dictionary {
	return &Dictionary{byKey: lazy{open: byKey}, byID: lazy{open: byID}, known: new(Known), fresh: new(Fresh),
		types: &typeTable{meta: meta, types: lazy{open: types}, blocks: lazy{open: blocks}}}
}

// maxKnown is how many series a dictionary keeps decoded.
const maxKnown = 1 << 15

// Known keeps decoded series, up to maxKnown. The zero value is empty. As a series never
// changes, the answers of one read transaction are good for the next.
type Known struct {
	of Table[*Series]
	n  int
}

func (k *Known) put(id uint32, s *Series) {
	if k.n++; k.n > maxKnown {
		*k = Known{n: 1}
	}
	*k.of.At(id) = s
}

// SetKnown makes d use and add to what is known of earlier read transactions.
func (d *Dictionary) SetKnown(k *Known) { d.known = k }

// leafView is the leaf of bucket series_by_id that was read last, in a read
// transaction, and the place in it. Most of the time the next series is near.
type leafView struct {
	page        treePage
	at          int
	first, last []byte
}

// value returns the record of a series, nil when there is none.
func (d *Dictionary) value(id uint32) ([]byte, error) {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], id)
	byID, err := d.byID.bucket()
	if err != nil {
		return nil, err
	}
	root := byID.root()
	if root == 0 || byID.overlaid() || byID.pagesChange() {
		return get(byID, key[:])
	}
	n := &d.near
	switch {
	case n.at+1 < n.page.count && string(n.page.key(n.at+1)) == string(key[:]):
		n.at++
		return n.page.value(n.at), nil
	case n.page.count == 0 || string(key[:]) < string(n.first) || string(key[:]) > string(n.last):
		m := mappedOf(byID)
		leaf, err := m.walk(root, 0, func(p treePage) int { return p.search(key[:]) })
		if err != nil || leaf.count == 0 {
			return nil, err
		}
		*n = leafView{page: leaf, first: leaf.key(0), last: leaf.key(leaf.count - 1)}
	}
	n.at = n.page.search(key[:])
	if string(n.page.key(n.at)) != string(key[:]) {
		return nil, nil
	}
	return n.page.value(n.at), nil
}

// View returns the series with an id, in the database's memory: it is valid until
// the end of the transaction or the next write.
func (d *Dictionary) View(id uint32) (SeriesView, error) {
	v, err := d.value(id)
	if err == nil && v == nil {
		err = fmt.Errorf("%w: series %d is missing", ErrDamaged, id)
	}
	if err != nil {
		return SeriesView{}, err
	}
	return ViewSeries(id, v)
}

// Get returns the series with an id. The result is shared and must not be changed.
func (d *Dictionary) Get(id uint32) (*Series, error) {
	if s := d.known.of.Get(id); s != nil {
		return s, nil
	}
	v, err := d.value(id)
	if err == nil && v == nil {
		err = fmt.Errorf("%w: series %d is missing", ErrDamaged, id)
	}
	if err != nil {
		return nil, err
	}
	s, err := DecodeSeries(id, v)
	if err != nil {
		return nil, err
	}
	d.known.put(id, &s)
	return &s, nil
}

// greatest returns the greatest id of a series that is there, 0 for none.
func (d *Dictionary) greatest() (uint32, error) {
	byID, err := d.byID.bucket()
	if err != nil {
		return 0, err
	}
	if err := CheckLast(byID); err != nil {
		return 0, err
	}
	k, _ := byID.Cursor().Last()
	if k == nil {
		return 0, nil
	}
	if len(k) != 4 {
		return 0, fmt.Errorf("%w: series id of %d bytes", ErrDamaged, len(k))
	}
	return binary.BigEndian.Uint32(k), nil
}

// Last returns the highest id ever given to a series.
func (d *Dictionary) Last() (uint32, error) {
	c, err := d.types.counters()
	return c.last, err
}

// Len returns how many series there are.
func (d *Dictionary) Len() (int64, error) {
	c, err := d.types.counters()
	return int64(c.count), err
}

// LastVisible returns the greatest id of a series whose first event has an id up to
// head, 0 when there is none. Those above belong to a batch that is not complete.
func (d *Dictionary) LastVisible(head int64) (uint32, error) {
	n, err := d.greatest()
	if err != nil || n == 0 {
		return 0, err
	}
	if v, err := d.View(n); err != nil || v.First <= head {
		return n, err
	}
	// The first events of series are in the order of their ids.
	var failed error
	above := sort.Search(int(n), func(i int) bool {
		visible := false
		if failed == nil {
			failed = d.Each(uint32(i)+1, n, func(_ uint32, v *SeriesView) (bool, error) {
				visible = v.First <= head
				return false, nil
			})
		}
		return !visible
	})
	// above+1 is the first id from which on no series is visible.
	return uint32(above), failed
}

// Find returns the id of a triple, 0 when it is not there.
func (d *Dictionary) Find(source, typ string, subtype *string) (uint32, error) {
	byKey, err := d.byKey.bucket()
	if err != nil {
		return 0, err
	}
	v, err := getFrom(byKey, SeriesKey(source, typ, subtype), d.written)
	if err != nil || v == nil {
		return 0, err
	}
	if len(v) != 4 {
		return 0, fmt.Errorf("%w: series entry of %d bytes", ErrDamaged, len(v))
	}
	return binary.BigEndian.Uint32(v), nil
}

// Add returns the id of a triple and, when it is new, stores it with first as
// the id of its first event. The transaction must be writable, and Flush be called
// before it ends.
func (d *Dictionary) Add(source, typ string, subtype *string, first int64) (uint32, error) {
	t := triple{source: source, typ: typ, subtype: textOf(subtype), hasSubtype: subtype != nil}
	if id, ok := d.ids[t]; ok {
		return id, nil
	}
	id := d.fresh.ids[t]
	if id == 0 {
		var err error
		if id, err = d.Find(source, typ, subtype); err != nil {
			return 0, err
		}
	}
	if id == 0 {
		last, err := d.Last()
		if err != nil {
			return 0, err
		}
		if last == 1<<32-1 {
			return 0, errors.New("a thread holds at most 4294967295 series")
		}
		id = last + 1
		if err := d.Put(id, &Series{Source: source, Type: typ, Subtype: subtype, First: first}); err != nil {
			return 0, err
		}
		if d.fresh.ids == nil {
			d.fresh.ids = make(map[triple]uint32)
		}
		d.fresh.ids[t] = id
		return id, nil
	}
	if d.ids == nil {
		d.ids = make(map[triple]uint32)
	}
	d.ids[t] = id
	return id, nil
}

// Put stores a series under an id above all others, without its key in bucket
// series.
func (d *Dictionary) Put(id uint32, s *Series) error {
	byID, err := d.byID.bucket()
	if err != nil {
		return err
	}
	if err := byID.Put(seriesID(id), encodeSeries(id, s)); err != nil {
		return err
	}
	return d.putType(id, s.Type, s.Subtype)
}

// Flush puts the keys that wait, unless they are fewer than atLeast.
func (d *Dictionary) Flush(atLeast int) error {
	if len(d.fresh.ids) == 0 || len(d.fresh.ids) < atLeast {
		return nil
	}
	byKey, err := d.byKey.bucket()
	if err != nil {
		return err
	}
	d.written = true
	keys, ids := make([]string, 0, len(d.fresh.ids)), make(map[string]uint32, len(d.fresh.ids))
	for t, id := range d.fresh.ids {
		var subtype *string
		if t.hasSubtype {
			subtype = &t.subtype
		}
		key := string(SeriesKey(t.source, t.typ, subtype))
		keys, ids[key] = append(keys, key), id
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := byKey.Put([]byte(key), seriesID(ids[key])); err != nil {
			return err
		}
	}
	if d.ids == nil {
		d.ids = d.fresh.ids
	} else {
		for t, id := range d.fresh.ids {
			d.ids[t] = id
		}
	}
	d.fresh.ids = nil
	return nil
}

// Fresh returns the keys that wait, to be given to the Dictionary of the next
// transaction with SetFresh, before anything is visible of them.
func (d *Dictionary) Fresh() *Fresh { return d.fresh }

// SetWritten says that the transaction has written to the pages before d was made.
func (d *Dictionary) SetWritten() { d.written = true }

// SetFresh continues with what a Dictionary before this one has left.
func (d *Dictionary) SetFresh(f *Fresh) { d.fresh = f }

// DropAfter removes the series whose first event has an id above head. They
// are the newest ones. All are found before the first is removed; see
// DropBlocksAfter.
func (d *Dictionary) DropAfter(head int64) error {
	last, err := d.LastVisible(head)
	if err != nil {
		return err
	}
	greatest, err := d.greatest()
	if err != nil || greatest == last {
		return err
	}
	var ids []uint32
	var keys [][]byte
	err = d.Each(last+1, greatest, func(id uint32, v *SeriesView) (bool, error) {
		ids, keys = append(ids, id), append(keys, ViewKey(v))
		return true, nil
	})
	if err != nil {
		return err
	}
	byID, err := d.byID.bucket()
	if err != nil {
		return err
	}
	byKey, err := d.byKey.bucket()
	if err != nil {
		return err
	}
	d.written = true
	for i, id := range ids {
		if err := Delete(byKey, keys[i]); err != nil {
			return err
		}
		if err := byID.Delete(seriesID(id)); err != nil {
			return err
		}
	}
	d.known, d.ids, d.fresh = new(Known), nil, new(Fresh)
	return d.dropTypes(last, len(ids))
}
