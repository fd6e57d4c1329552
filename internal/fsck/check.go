package fsck

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"os"
	"slices"

	"thread/engine"
	"thread/index"
	"thread/internal/progress"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// Fault is something wrong in a thread directory.
type Fault struct {
	Place string // "page 7 of bucket events", "event 12", "events.jsonl line 3"
	What  string
	// Of what is wrong with a line: its file, its number, 0 where the file itself is
	// meant, and the event that it is about, 0 where none is.
	File        string
	Line, Event int64
}

// Report is what Check has found.
type Report struct {
	Events    int64 // records of events that were checked
	Pages     int64 // pages in use
	FreePages int64
	Format    int64 // of the file, 0 where that is damaged; Newest is what compact makes it
	Newest    int64
	Lines     int64   // lines of JSON that were compared with their events
	Faults    []Fault // at most 1000
	More      int64   // faults beyond these
	// Notes are not faults: what a crash may leave, and what heals at the next push.
	Notes []Fault
	// Digest is the SHA-256 of Digest in hex, "" when the database has faults.
	Digest string
}

// DatabaseSound reports whether the faults, if any, are all in events*.jsonl, which
// FixLog rewrites. While there are others the lines are not checked.
func (r *Report) DatabaseSound() bool { return len(r.Faults) == 0 || r.Faults[0].File != "" }

// maxFaults bounds a report: one bad page can put thousands of events out of
// order.
const maxFaults = 1000

// Check checks everything in the thread directory: every page of the database
// and how they hang together, the checksum of every record,
// the columns and the series against the events, ids, head and progress, and
// all events*.jsonl: every event must have its line, and every line be the line of its
// event. It changes nothing but
// makes events.jsonl durable, from which Repair can take what the database lost.
//
// It reads in slices, so that writers wait no longer than for any other long read,
// and checks the events that there were when it began. Where the database has a
// fault it reads all of it once more at once: what changed meanwhile is none.
//
// What Check finds wrong is in the report; an error means that it could not
// look: the errors of Open, ErrBusy, and ErrCorrupt when not even a meta page of the
// database is whole.
func Check(ctx context.Context, t *engine.Thread) (*Report, error) {
	t = t.WithoutRelease()
	c, err := checkDatabase(ctx, t)
	if err != nil {
		return nil, err
	}
	if len(c.report.Faults) > 0 {
		return c.report, nil // the lines cannot be compared with events that cannot be read
	}
	if _, err := c.lineFiles(ctx); err != nil {
		return nil, err
	}
	if c.report.DatabaseSound() {
		sum, err := t.Digest(ctx)
		if err != nil {
			return nil, err
		}
		c.report.Digest = hex.EncodeToString(sum[:])
	}
	return c.report, nil
}

// newChecker returns a checker of what t is kept in.
func newChecker(t *engine.Thread) *checker {
	return &checker{t: t, s: storeOf(t), report: new(Report)}
}

// storeOf returns the directory that a thread is kept in. There is no other kind yet.
func storeOf(t *engine.Thread) *bolt.Store { return t.Store().(*bolt.Store) }

// checkPages is how a check reads the database: page by page, without bbolt, under
// the shared lock. In slices it lets go of the lock every few milliseconds and goes
// on behind the last key, in what the database is by then. The file only has to
// stay the same one; events are checked up to the head of the beginning.
type checkPages struct {
	ctx    context.Context
	far    progress.Report
	sliced bool

	f       *os.File    // locked
	first   os.FileInfo // of the first slice's file
	walk    *disk.TreeWalk
	buckets map[string][]byte
	names   []string
	format  []byte // the records of bucket meta
	state   []byte
	series  []byte
	record  []byte       // of the journal, in the pages
	journal bolt.Journal // as far as it was read
	changes changes
	now     disk.State // what state says, if it is sound

	slices int  // of the present bucket
	over   bool // what comes in it is newer than the check

	overflow []uint32 // by page: one more than how many belong to it, 0 when not seen
}

// largeContent is one whose pieces are awaited.
type largeContent struct {
	id int64
	disk.Assembly
}

type seriesFacts struct {
	first   int64  // 0: there is no such series
	key     uint64 // hash of its key
	typ     uint32 // id of its type
	named   bool   // has an entry in bucket series
	blocked bool   // is in a type block
}

// idRange is ids without gaps.
type idRange struct{ first, last uint32 }

// seriesCheck is what a check knows of the series: little of each, for there may be
// millions.
type seriesCheck struct {
	of    index.Table[seriesFacts]
	ids   []idRange // those that there are
	count int64
	last  uint32 // the last id that was given when the check began,
	then  []byte // and what was counted
	seed  maphash.Seed
	types map[uint64]uint32 // ids of types, by the hash of their key
}

type checker struct {
	t      *engine.Thread
	s      *bolt.Store // of t
	report *Report
	pages  checkPages

	st       disk.State // when the check began
	format   uint32
	series   seriesCheck
	blocks   []index.Block
	block    int // the block, and the place in it, of the next event
	inBlock  int
	tail     int64
	tailIDs  []int64 // of the events behind the blocks
	oldestID int64   // the first event that is stored
	lastID   int64
	beyond   int64          // events above head
	contents []largeContent // whose pieces were not all seen yet
	ordinals map[uint64]string
	entries  map[string]string // keys of schedules in the queue, and their names
}

func (c *checker) fault(place, what string) { c.add(Fault{Place: place, What: what}) }

func (c *checker) add(f Fault) {
	if len(c.report.Faults) == maxFaults {
		c.report.More++
		return
	}
	c.report.Faults = append(c.report.Faults, f)
}

func (c *checker) faultf(place, format string, args ...any) {
	c.fault(place, fmt.Sprintf(format, args...))
}

func (c *checker) note(place, format string, args ...any) {
	c.report.Notes = append(c.report.Notes, Fault{Place: place, What: fmt.Sprintf(format, args...)})
}

// isStored reports whether an event was there when the check began, or is newer.
func (c *checker) isStored(id int64) bool {
	if id > c.st.Head {
		return true
	}
	i, _ := slices.BinarySearchFunc(c.blocks, id, func(b index.Block, id int64) int {
		if b.Last < id {
			return -1
		}
		return 1
	})
	if i == len(c.blocks) {
		_, found := slices.BinarySearch(c.tailIDs, id)
		return found
	}
	b := &c.blocks[i]
	n := b.After(id - 1)
	return n < b.Count && b.ID(n) == id
}

func keyID(key []byte) (uint32, bool) {
	if len(key) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(key), true
}

// note is told of every page that is read in a slice.
func (p *checkPages) note(g *disk.Page) {
	if n := int(g.ID) + 1 - len(p.overflow); n > 0 {
		p.overflow = append(p.overflow, make([]uint32, n)...)
	}
	p.overflow[g.ID] = uint32(g.Overflow) + 1
}
