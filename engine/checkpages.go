package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"thread/lock"
)

// checkPages is how a check reads the database: page by page, without bbolt, under
// the shared lock. In slices it lets go of the lock every few milliseconds and goes
// on behind the last key, in what the database is by then. The file only has to
// stay the same one; events are looked at up to the head of the beginning.
type checkPages struct {
	ctx    context.Context
	sliced bool

	f       *os.File    // locked
	first   os.FileInfo // of the first slice's file
	walk    *treeWalk
	buckets map[string][]byte
	names   []string
	format  []byte // the records of bucket meta
	state   []byte
	series  []byte
	now     state // what state says, if it is sound

	slices int  // of the present bucket
	over   bool // what comes in it is newer than the check

	overflow []uint32 // by page: one more than how many belong to it, 0 when not seen
}

// errChanged ends a check in slices that must begin anew.
var errChanged = errors.New("the database was replaced")

// checkDatabase looks at the database in slices. A fault can be one that only
// seems so, as when a record moves from a bucket that was not looked at yet to one
// that was; so then, and where the file is replaced again and again, it is looked
// at once more, under one lock.
func (t *Thread) checkDatabase(ctx context.Context) (*checker, error) {
	for n := 1; ; n++ {
		c := &checker{t: t, report: new(CheckReport)}
		c.pages = checkPages{ctx: ctx, sliced: n <= 3}
		err := c.database()
		c.pages.close()
		switch {
		case !c.pages.sliced || err == nil && len(c.report.Faults) == 0:
			return c, err
		case ctx.Err() != nil || errors.Is(err, ErrBusy) || errors.Is(err, ErrClosed):
			return nil, err
		case !errors.Is(err, errChanged):
			n = 3
		}
	}
}

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
	if p.f, err = c.t.lockForReading(p.ctx); err != nil {
		return err
	}
	info, err := p.f.Stat()
	if err != nil {
		return err
	}
	if p.first == nil {
		p.first = info
	} else if !os.SameFile(p.first, info) {
		return errChanged
	}
	two := readMetas(p.f)
	found := two.whole()
	if len(found) == 0 {
		return fmt.Errorf("%w: both meta pages", ErrCorrupt)
	}
	if err := two.fault(); err != nil {
		c.fault("meta pages", strings.TrimPrefix(err.Error(), ErrCorrupt.Error()+": "))
	}
	pages, err := newPageFile(p.f, int64(found[0].pageSize))
	if err != nil {
		return err
	}
	p.walk = &treeWalk{pageFile: pages, meta: found[0], used: map[uint64]bool{0: true, 1: true}, fault: c.fault}
	if p.sliced {
		p.walk.enough = c.slice()
		p.walk.seen = p.note
	}
	p.buckets, p.names = make(map[string][]byte), nil
	var last []byte
	enough := p.walk.enough
	p.walk.enough = nil // these few are read at once
	p.walk.tree("", p.walk.meta.root, 0, nil, &last, func(e *element) {
		if !e.bucket {
			c.faultf("bucket list", "%q is not a bucket", e.key)
			return
		}
		p.buckets[string(e.key)] = e.value
		p.names = append(p.names, string(e.key))
	})
	if p.buckets[string(bucketMeta)] == nil && len(c.report.Faults) == 0 {
		return fmt.Errorf("%w: no bucket %q", ErrNotDatabase, bucketMeta)
	}
	p.format, p.state, p.series = nil, nil, nil
	if err := c.visit(bucketMeta, c.meta); err != nil {
		return err
	}
	p.walk.enough = enough
	p.now, _ = decodeState(p.state)
	return nil
}

// checkSliceTime is a variable for the tests.
var checkSliceTime = sliceTime

// slice returns what tells that a slice is over. Where there are very many, because
// writers wait all the time, they get longer: or a bucket could grow faster than it
// is read.
func (c *checker) slice() func() bool {
	c.pages.slices++
	each := min(glanceTime*time.Duration(1+c.pages.slices/256), checkSliceTime)
	now := time.Now()
	until, glance := now.Add(checkSliceTime), now.Add(each)
	return func() bool {
		now := time.Now()
		if c.pages.over || now.After(until) {
			return true
		}
		if !now.After(glance) {
			return false
		}
		glance = now.Add(each)
		return c.t.writerWaits()
	}
}

func (c *checker) meta(e *element) {
	switch string(e.key) {
	case string(keyFormat):
		c.pages.format = e.value
	case string(keyState):
		c.pages.state = e.value
	case string(keySeries):
		c.pages.series = e.value
	}
}

// visit calls fn for the entries of one of the buckets that every thread has.
func (c *checker) visit(name []byte, fn func(e *element)) error {
	if _, ok := c.pages.buckets[string(name)]; !ok {
		c.fault("bucket "+string(name), "is missing")
		return nil
	}
	return c.bucket(string(name), func(e *element) {
		if e.bucket {
			c.faultf("bucket "+string(name), "%q is a bucket", e.key)
			return
		}
		fn(e)
	})
}

// bucket calls fn for the entries of a bucket, in as many slices as it takes.
func (c *checker) bucket(name string, fn func(e *element)) error {
	p := &c.pages
	p.slices, p.over = 0, false
	var last []byte
	for {
		p.walk.bucket(name, p.buckets[name], func(e *element) {
			last = e.key
			fn(e)
		})
		if !p.walk.stopped || p.over {
			p.walk.after, p.walk.stopped, p.over = nil, false, false
			return nil
		}
		last = bytes.Clone(last) // not the page that it is in
		if err := c.open(); err != nil {
			return err
		}
		if p.buckets[name] == nil {
			return nil // it was the last entry
		}
		p.walk.after = last
	}
}

// database looks at the pages and what is in them.
func (c *checker) database() error {
	if err := c.open(); err != nil {
		return err
	}
	c.linesAhead()
	names := slices.Clone(c.pages.names)
	if err := c.ourBuckets(); err != nil {
		return err
	}
	for _, name := range names {
		if isOurs(name) {
			continue
		}
		if err := c.foreign(name); err != nil {
			return err
		}
	}
	c.contentsBefore(math.MaxInt64)
	c.orphanEntries()
	if c.pages.sliced {
		return c.account()
	}
	w := c.pages.walk
	c.report.FreePages = w.free(nil)
	c.report.Pages = int64(len(w.used)) - c.report.FreePages
	for id := range w.meta.pages {
		if !w.used[id] {
			w.faultf(id, "", "is neither in use nor free")
		}
	}
	return nil
}

// visit is a bucket and what looks at its entries.
type visit struct {
	bucket []byte
	fn     func(e *element)
}

// ourBuckets looks at the engine's own buckets. A newer format is an error, not
// a fault.
func (c *checker) ourBuckets() error {
	var err error
	if c.format, err = decodeFormat(c.pages.format); errors.Is(err, ErrNewerFormat) {
		return err
	} else if err != nil {
		c.fault("bucket meta", "has no format")
	}
	if c.st, err = decodeState(c.pages.state); err != nil {
		c.fault("bucket meta", "the state record is damaged")
		return nil
	}
	c.countedSeries()
	visits := []visit{{bucketSeriesByID, c.seriesByID}, {bucketSeries, c.seriesByKey}}
	if c.format >= 2 {
		visits = []visit{{bucketTypes, c.seriesType}, visits[0], visits[1], {bucketTypeBlocks, c.typeBlock}}
	}
	for _, v := range append(visits, visit{bucketColumns, c.column}, visit{bucketEvents, c.event},
		visit{bucketSubscriptions, c.subscription}, visit{bucketProgress, c.progress}) {
		if err := c.visit(v.bucket, v.fn); err != nil {
			return err
		}
	}
	c.seriesCounters()
	c.totals()
	return nil
}

// foreign looks at a bucket that not every thread has: its pages, and its records
// where one that is damaged would keep everybody from writing.
func (c *checker) foreign(name string) error {
	nested := false
	if c.pages.buckets[name] == nil {
		return nil // it is gone by now
	}
	err := c.bucket(name, func(e *element) {
		if e.bucket {
			if nested = true; !c.pages.sliced {
				c.within(name+"/"+string(e.key), e.value, 1)
			}
		}
		switch name {
		case string(bucketPieces):
			c.piece(e)
		case string(bucketScheduled):
			c.scheduled(e)
		case string(bucketSchedules):
			c.schedule(e)
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
	c.pages.walk.bucket(name, head, func(e *element) {
		if e.bucket && depth < maxTreeDepth {
			c.within(name+"/"+string(e.key), e.value, depth+1)
		}
	})
}

// lockForReading returns events.db, under a shared lock, with at least one whole
// meta page: that is enough to look at what there is. A file that was replaced
// meanwhile is opened anew.
func (t *Thread) lockForReading(ctx context.Context) (*os.File, error) {
	if t.isClosed() {
		return nil, ErrClosed
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	if _, err := t.gate(ctx, lock.Shared); err != nil {
		return nil, err
	}
	f, err := t.lockDatabase(ctx, os.O_RDONLY, lock.Shared, func(f *os.File) error {
		_, err := readHeader(f)
		return err
	})
	return f, t.heldUp(ctx, err)
}

func isOurs(bucket string) bool {
	return slices.ContainsFunc(slices.Concat(ourBuckets, typeBuckets), func(b []byte) bool { return string(b) == bucket })
}
