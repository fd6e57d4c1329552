package engine

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.etcd.io/bbolt"

	"thread/index"
	"thread/lock"
)

// Fault is something wrong in a thread directory.
type Fault struct {
	Place string // "page 7 of bucket events", "event 12", "events.jsonl line 3"
	What  string
}

// CheckReport is the answer of Check.
type CheckReport struct {
	Events    int64 // records of events that were looked at
	Pages     int64 // pages in use
	FreePages int64
	Lines     int64   // lines of JSON that were compared with their events
	Faults    []Fault // at most 1000
	More      int64   // faults beyond these
	// Notes are no faults: what a crash may leave, and what heals at the next push.
	Notes []Fault
	// Digest is the SHA-256 of Digest in hex, "" when there are faults.
	Digest string
}

// maxFaults bounds a report: one bad page can put thousands of events out of
// order.
const maxFaults = 1000

// Check looks at everything in the thread directory: every page of the database
// and how they hang together, bbolt's own check, the checksum of every record,
// the columns and the series against the events, ids, head and progress, and
// the lines of all events*.jsonl against their events. It changes nothing but
// makes events.jsonl durable, from which Repair can take what the database lost.
// Writers wait while it reads the database.
//
// What Check finds wrong is in the report; an error means that it could not
// look: those of Open, ErrBusy, and ErrCorrupt when not even a meta page of the
// database is whole.
func (t *Thread) Check(ctx context.Context) (*CheckReport, error) {
	if t.isClosed() {
		return nil, ErrClosed
	}
	// What is looked at stays as it is: nothing scheduled is released.
	t = &Thread{dir: t.dir, lockWait: t.lockWait, now: t.now, maxGroup: t.maxGroup, still: true}
	c := &checker{t: t, report: new(CheckReport)}
	if err := c.database(ctx); err != nil {
		return nil, err
	}
	if len(c.report.Faults) > 0 {
		return c.report, nil // the lines cannot be compared with events that cannot be read
	}
	if err := c.ownCheck(ctx); err != nil {
		return nil, err
	}
	if err := c.lineFiles(ctx); err != nil {
		return nil, err
	}
	if len(c.report.Faults) == 0 {
		sum, err := t.Digest(ctx)
		if err != nil {
			return nil, err
		}
		c.report.Digest = hex.EncodeToString(sum[:])
	}
	return c.report, nil
}

type checker struct {
	t      *Thread
	report *CheckReport

	st       state
	series   map[uint32]*index.Series
	byKey    map[string]uint32
	blocks   []index.Block
	block    int // the block, and the place in it, of the next event
	inBlock  int
	tail     int64
	lastID   int64
	ordinals map[uint64]string
	entries  map[string]string // keys of schedules in the queue, and their names
}

func (c *checker) fault(place, what string) {
	if len(c.report.Faults) == maxFaults {
		c.report.More++
		return
	}
	c.report.Faults = append(c.report.Faults, Fault{place, what})
}

func (c *checker) faultf(place, format string, args ...any) {
	c.fault(place, fmt.Sprintf(format, args...))
}

func (c *checker) note(place, format string, args ...any) {
	c.report.Notes = append(c.report.Notes, Fault{place, fmt.Sprintf(format, args...)})
}

// database looks at the pages and what is in them, all under one lock.
func (c *checker) database(ctx context.Context) error {
	f, err := c.t.lockForReading(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	two := readMetas(f)
	found := two.whole()
	if len(found) == 0 {
		return fmt.Errorf("%w: both meta pages", ErrCorrupt)
	}
	if err := two.fault(); err != nil {
		c.fault("meta pages", strings.TrimPrefix(err.Error(), ErrCorrupt.Error()+": "))
	}
	pages, err := newPageFile(f, int64(found[0].pageSize))
	if err != nil {
		return err
	}
	w := &treeWalk{pageFile: pages, meta: found[0], used: map[uint64]bool{0: true, 1: true}, fault: c.fault}
	buckets := make(map[string][]byte)
	var names []string
	var last []byte
	w.tree("", w.meta.root, 0, &last, func(e *element) {
		if !e.bucket {
			c.faultf("bucket list", "%q is not a bucket", e.key)
			return
		}
		buckets[string(e.key)] = e.value
		names = append(names, string(e.key))
	})
	if buckets[string(bucketMeta)] == nil && len(c.report.Faults) == 0 {
		return fmt.Errorf("%w: no bucket %q", ErrNotDatabase, bucketMeta)
	}
	if err := c.ourBuckets(w, buckets); err != nil {
		return err
	}
	for _, name := range names {
		if !isOurs(name) {
			c.foreign(w, name, buckets[name], 0)
		}
	}
	c.orphanEntries()
	c.linesAhead()
	c.report.FreePages = w.free()
	c.report.Pages = int64(len(w.used)) - c.report.FreePages
	for id := range w.meta.pages {
		if !w.used[id] {
			w.faultf(id, "", "is neither in use nor free")
		}
	}
	return nil
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
	for _, b := range ourBuckets {
		if string(b) == bucket {
			return true
		}
	}
	return false
}

// ourBuckets looks at the engine's own buckets. A newer format is an error, not
// a fault.
func (c *checker) ourBuckets(w *treeWalk, buckets map[string][]byte) error {
	var format, st []byte
	visit := func(name []byte, fn func(e *element)) {
		head, ok := buckets[string(name)]
		if !ok {
			c.fault("bucket "+string(name), "is missing")
			return
		}
		w.bucket(string(name), head, func(e *element) {
			if e.bucket {
				c.faultf("bucket "+string(name), "%q is a bucket", e.key)
				return
			}
			fn(e)
		})
	}
	visit(bucketMeta, func(e *element) {
		switch string(e.key) {
		case string(keyFormat):
			format = e.value
		case string(keyState):
			st = e.value
		}
	})
	if err := checkFormat(format); errors.Is(err, ErrNewerFormat) {
		return err
	} else if err != nil {
		c.fault("bucket meta", "has no format")
	}
	var err error
	if c.st, err = decodeState(st); err != nil {
		c.fault("bucket meta", "the state record is damaged")
		return nil
	}
	visit(bucketSeriesByID, c.seriesByID)
	visit(bucketSeries, c.seriesByKey)
	visit(bucketColumns, c.column)
	visit(bucketEvents, c.event)
	visit(bucketSubscriptions, c.subscription)
	visit(bucketProgress, c.progress)
	c.totals()
	return nil
}

// foreign looks at a bucket that not every thread has: its pages, and its records
// where one that is damaged would keep everybody from writing.
func (c *checker) foreign(w *treeWalk, name string, head []byte, depth int) {
	w.bucket(name, head, func(e *element) {
		if e.bucket && depth < maxTreeDepth {
			c.foreign(w, name+"/"+string(e.key), e.value, depth+1)
		}
		switch name {
		case string(bucketScheduled):
			c.scheduled(e)
		case string(bucketSchedules):
			c.schedule(e)
		}
	})
}

// ownCheck runs bbolt's check. It is told only of files whose pages were found
// to hang together, so that it cannot run into a loop.
func (c *checker) ownCheck(ctx context.Context) error {
	return c.t.read(ctx, func(tx *Tx) error {
		for err := range tx.b.Check(bbolt.WithKVStringer(bbolt.HexKVStringer())) {
			c.fault("pages", err.Error())
		}
		return nil
	})
}

func keyID(key []byte) (uint32, bool) {
	if len(key) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(key), true
}
