package fsck

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"thread/engine"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// errReplaced ends a check in slices that must start over.
var errReplaced = errors.New("the database was replaced")

func (p *checkPages) close() {
	if p.f != nil {
		p.f.Close()
		p.f = nil
	}
}

// open locks the database and reads the list of its buckets and the bucket meta.
func (c *checker) open() error {
	p := &c.pages
	p.close()
	var err error
	if p.f, err = c.s.LockForReading(p.ctx); err != nil {
		return err
	}
	info, err := p.f.Stat()
	if err != nil {
		return err
	}
	if p.first == nil {
		p.first = info
	} else if !os.SameFile(p.first, info) {
		return errReplaced
	}
	metas := disk.ReadMetas(p.f)
	found := metas.Valid()
	if len(found) == 0 {
		return fmt.Errorf("%w: both meta pages", engine.ErrCorrupt)
	}
	if err := metas.Fault(); err != nil {
		c.fault("meta pages", strings.TrimPrefix(err.Error(), engine.ErrCorrupt.Error()+": "))
	}
	pages, err := disk.NewPageFile(p.f, int64(found[0].PageSize))
	if err != nil {
		return err
	}
	p.walk = &disk.TreeWalk{PageFile: pages, Meta: found[0], Used: map[uint64]bool{0: true, 1: true}, Fault: c.fault}
	if p.sliced {
		p.walk.Enough = c.slice()
		p.walk.Seen = p.note
	}
	p.buckets, p.names = make(map[string][]byte), nil
	var last []byte
	enough := p.walk.Enough
	p.walk.Enough = nil // these few are read at once
	p.walk.Tree("", p.walk.Meta.Root, 0, nil, &last, func(e *disk.Element) {
		if !e.Bucket {
			c.faultf("bucket list", "%q is not a bucket", e.Key)
			return
		}
		p.buckets[string(e.Key)] = e.Value
		p.names = append(p.names, string(e.Key))
	})
	if p.buckets[string(disk.BucketMeta)] == nil && len(c.report.Faults) == 0 {
		return fmt.Errorf("%w: no bucket %q", engine.ErrNotDatabase, disk.BucketMeta)
	}
	p.format, p.state, p.series, p.record, p.changes = nil, nil, nil, nil, nil
	if err := c.visit(disk.BucketMeta, c.meta); err != nil {
		return err
	}
	if err := c.journal(); err != nil {
		return err
	}
	p.walk.Enough = enough
	p.now, _ = disk.DecodeState(p.state)
	return nil
}

// checkSliceTime is a variable for the tests.
var checkSliceTime = bolt.SliceTime

// slice returns what tells that a slice has ended. Where there are very many, because
// writers wait all the time, they get longer: or a bucket could grow faster than it
// is read.
func (c *checker) slice() func() bool {
	c.pages.slices++
	each := min(bolt.WriterCheckTime*time.Duration(1+c.pages.slices/256), checkSliceTime)
	now := time.Now()
	until, check := now.Add(checkSliceTime), now.Add(each)
	return func() bool {
		now := time.Now()
		if c.pages.over || now.After(until) {
			return true
		}
		if !now.After(check) {
			return false
		}
		check = now.Add(each)
		return c.s.WriterWaits()
	}
}

func (c *checker) meta(e *disk.Element) {
	switch string(e.Key) {
	case string(disk.KeyFormat):
		c.pages.format = e.Value
	case string(disk.KeyState):
		c.pages.state = e.Value
	case string(disk.KeySeries):
		c.pages.series = e.Value
	case string(disk.KeyJournal):
		c.pages.record = e.Value
	}
}

// journal reads what the journal adds to the pages.
func (c *checker) journal() error {
	p := &c.pages
	var err error
	p.changes, err = readChanges(&p.journal, c.s, p.record, p.walk, p.buckets)
	if errors.Is(err, engine.ErrCorrupt) || errors.Is(err, index.ErrDamaged) {
		c.fault(bolt.JournalName, strings.TrimPrefix(err.Error(), engine.ErrCorrupt.Error()+": "))
	} else if err != nil {
		return err
	}
	p.names = p.changes.add(p.buckets, p.names)
	if of := p.changes[string(disk.BucketMeta)]; of != nil {
		for _, k := range of.Keys {
			c.meta(&disk.Element{Key: k.Key, Value: k.Value})
		}
	}
	return nil
}

// visit calls fn for the entries of one of the buckets that every thread has.
func (c *checker) visit(name []byte, fn func(e *disk.Element)) error {
	if _, ok := c.pages.buckets[string(name)]; !ok {
		c.fault("bucket "+string(name), "is missing")
		return nil
	}
	return c.bucket(string(name), func(e *disk.Element) {
		if e.Bucket {
			c.faultf("bucket "+string(name), "%q is a bucket", e.Key)
			return
		}
		fn(e)
	})
}

// bucket calls fn for the entries of a bucket, in as many slices as it takes.
func (c *checker) bucket(name string, fn func(e *disk.Element)) error {
	p := &c.pages
	p.slices, p.over = 0, false
	var last []byte
	for {
		m := p.changes.merge(name, p.walk.After, fn)
		p.walk.Bucket(name, p.buckets[name], func(e *disk.Element) {
			last = e.Key
			m.stored(e)
		})
		if !p.walk.Stopped {
			m.rest()
		}
		if !p.walk.Stopped || p.over {
			p.walk.After, p.walk.Stopped, p.over = nil, false, false
			return nil
		}
		last = bytes.Clone(last) // not the page that it is in
		if err := c.open(); err != nil {
			return err
		}
		if p.buckets[name] == nil {
			return nil // it was the last entry
		}
		p.walk.After = last
	}
}

// visit is a bucket and what checks its entries.
type visit struct {
	bucket []byte
	fn     func(e *disk.Element)
}

// ourBuckets checks the engine's own buckets. A newer format is an error, not
// a fault.
func (c *checker) ourBuckets() error {
	var err error
	if c.format, err = disk.DecodeFormat(c.pages.format); errors.Is(err, engine.ErrNewerFormat) || errors.Is(err, store.ErrOldFormat) {
		return err
	} else if err != nil {
		c.fault("bucket meta", "has no format")
	}
	c.report.Format, c.report.Newest = int64(c.format), disk.FormatVersion
	if c.st, err = disk.DecodeState(c.pages.state); err != nil {
		c.fault("bucket meta", "the state record is damaged")
		return nil
	}
	c.countedSeries()
	for _, v := range []visit{{disk.BucketTypes, c.seriesType}, {disk.BucketSeriesByID, c.seriesByID}, {disk.BucketSeries, c.seriesByKey},
		{disk.BucketTypeBlocks, c.typeBlock}, {disk.BucketColumns, c.column}, {disk.BucketEvents, c.event},
		{disk.BucketSubscriptions, c.subscription}, {disk.BucketProgress, c.progress}} {
		if err := c.visit(v.bucket, v.fn); err != nil {
			return err
		}
	}
	c.seriesCounters()
	c.totals()
	return nil
}

// foreign checks a bucket that not every thread has: its pages, and its records
// where one that is damaged would keep everybody from writing.
func (c *checker) foreign(name string) error {
	nested := false
	if c.pages.buckets[name] == nil {
		return nil // it is gone by now
	}
	err := c.bucket(name, func(e *disk.Element) {
		if e.Bucket {
			if nested = true; !c.pages.sliced {
				c.within(name+"/"+string(e.Key), e.Value, 1)
			}
		}
		switch name {
		case string(store.Pieces):
			c.piece(e)
		case string(store.Scheduled):
			c.scheduled(e.Key, e.Value)
		case string(store.Schedules):
			c.schedule(e.Key, e.Value)
		}
	})
	if err == nil && nested && c.pages.sliced {
		return errNested
	}
	return err
}

// errNested ends a check in slices of a database with buckets in buckets, which
// nothing of ours makes.
var errNested = errors.New("a bucket in a bucket")

func (c *checker) within(name string, head []byte, depth int) {
	c.pages.walk.Bucket(name, head, func(e *disk.Element) {
		if e.Bucket && depth < disk.MaxTreeDepth {
			c.within(name+"/"+string(e.Key), e.Value, depth+1)
		}
	})
}
