package fsck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"

	"thread/engine"
	"thread/index"
	"thread/internal/progress"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
	"thread/lock"
)

// RepairReport is the result of Repair.
type RepairReport struct {
	Saved int64 // events, and where they were found:
	// FromDatabase were where they belong. FromPrevious were in the state before
	// the last change. FromLines come from events*.jsonl, which has no checksums.
	// FromUnused were in pages that belong to no tree any more.
	FromDatabase, FromPrevious, FromLines, FromUnused int64

	Subscriptions, Progress int64

	Lost     []IDRange // ids of events that were stored and could not be saved
	LostMore int64     // and that many whose ids are not known
	// Unknown are ids of which it is not known whether there were events: where the
	// record of the ids that were given is lost, or may be an older one.
	Unknown  []IDRange
	NextID   int64    // of the next event, above all that were seen
	Problems []string // other things that could not be saved, or perhaps not
}

// Complete reports whether everything was certainly saved.
func (r *RepairReport) Complete() bool {
	return len(r.Lost)+len(r.Unknown)+len(r.Problems) == 0 && r.LostMore == 0
}

// IDRange is the ids from First to Last, both included.
type IDRange struct{ First, Last int64 }

// Repair saves what can be read of the damaged thread directory from into the new
// thread directory to, and says what was lost. It does not change from. Events
// count as sound when their checksum fits; what the database lost is taken from
// events*.jsonl, whose lines must at least be what an event of that id is written
// as. Events that were pruned stay pruned, and ids that were given are not given
// again. Repair needs some 100 bytes of memory for each event.
//
// Repair returns ErrExists when to is a thread directory already, ErrNotThread,
// ErrSQLite, ErrByteOrder or ErrNewerFormat when from is nothing that it knows,
// and ErrBusy.
func Repair(ctx context.Context, from, to string) (*RepairReport, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	src, err := bolt.New(from, bolt.Options{})
	if err != nil {
		return nil, err
	}
	s := &salvage{ctx: ctx, src: src, far: progress.Of(ctx), report: new(RepairReport), events: make(map[int64]origin), pieces: make(map[int64][]pieceOrigin), series: make(map[uint32]*index.Series)}
	defer s.close()
	if err := s.database(ctx); err != nil {
		return nil, err
	}
	if err := s.readLines(); err != nil {
		return nil, err
	}
	if len(s.events) == 0 && s.st == nil {
		return nil, fmt.Errorf("%w in %s", store.ErrNothingSaved, src.Dir)
	}
	return s.report, s.write(ctx, to)
}

// The places an event can come from, the best first.
const (
	fromDatabase = iota
	fromPrevious
	fromLines
	fromUnused
)

// origin says where a record is.
type origin struct {
	kind   int
	series uint32
	pieces bool   // its content is large
	page   uint64 // and the element in it,
	index  int
	key    []byte // or its key and value,
	value  []byte
	file   int   // or the line file,
	at     int64 // the line's offset and length
	n      int
}

type salvage struct {
	ctx    context.Context
	src    *bolt.Store
	far    progress.Report
	report *RepairReport
	f      *os.File
	pages  *disk.PageFile // nil: nothing of the database can be read
	kind   int            // of what is found now

	st         *disk.State // nil: lost
	badMetas   bool        // one meta page is not what a commit leaves
	stateOf    int         // where st was found
	seen       int64       // the highest id that anything shows to have been given
	newestLine int64       // the id of the last line of events.jsonl, which is whole
	events     map[int64]origin
	pieces     map[int64][]pieceOrigin // of large contents, by event
	series     map[uint32]*index.Series
	subs       []*store.Subscription
	progress   []store.ConsumerProgress
	extras     []store.Extra
	columns    []int64 // ids that the column blocks name
	files      []*os.File
	named      []int64 // ids of lines that cannot be used
	linesOff   bool    // pushes wrote no lines
	behind     changes // of a damaged journal, all that is sound; nil where it is not damaged
}

func (s *salvage) close() {
	for _, f := range append(s.files, s.f) {
		if f != nil {
			f.Close()
		}
	}
}

func (s *salvage) problem(format string, args ...any) {
	if len(s.report.Problems) < maxFaults {
		s.report.Problems = append(s.report.Problems, fmt.Sprintf(format, args...))
	}
}

// database collects what the database still holds.
func (s *salvage) database(ctx context.Context) (err error) {
	s.f, err = os.OpenFile(s.src.Path(bolt.DatabaseName), os.O_RDONLY|bolt.OpenNoFollow|bolt.OpenNoWait, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return s.withoutDatabase()
	}
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, s.src.LockTimeout)
	defer cancel()
	if err := lock.Wait(wait, s.f, lock.Shared); errors.Is(err, lock.ErrHeld) {
		return engine.ErrBusy
	} else if err != nil {
		return err
	}
	switch err := disk.CheckHeader(s.f); {
	case errors.Is(err, engine.ErrSQLite), errors.Is(err, engine.ErrByteOrder):
		return err
	case err != nil:
		s.problem("%v", err)
	}
	metas := disk.ReadMetas(s.f)
	found := metas.Valid()
	s.badMetas = metas.Fault() != nil
	if len(found) == 0 {
		s.journalAlone()
	}
	pageSize := int64(disk.PageBytes)
	if len(found) > 0 {
		pageSize = int64(found[0].PageSize)
	}
	if s.pages, err = disk.NewPageFile(s.f, pageSize); err != nil {
		return err
	}
	used := map[uint64]bool{}
	for i, m := range found {
		s.kind = min(fromDatabase+i, fromPrevious)
		w := &disk.TreeWalk{PageFile: s.pages, Meta: m, Used: map[uint64]bool{0: true, 1: true}, Fault: func(string, string) {},
			Enough: func() bool { return ctx.Err() != nil }}
		if err := s.trees(w); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for id := range w.Used {
			used[id] = true
		}
	}
	s.kind = fromUnused
	return s.unused(used)
}

// withoutDatabase continues with the line files alone, where there are some.
func (s *salvage) withoutDatabase() error {
	s.journalAlone()
	if _, err := os.Lstat(s.src.Path("events.jsonl")); err != nil && len(s.events) == 0 {
		return fmt.Errorf("%w: %s", engine.ErrNotThread, s.src.Dir)
	}
	if len(s.subs)+len(s.progress) == 0 {
		s.problem("events.db is missing: subscriptions and progress are lost")
	}
	return nil
}

func countIDs(ranges []IDRange) (n int64) {
	for _, r := range ranges {
		n += r.Last - r.First + 1
	}
	return n
}

// dense reports whether every id up to the newest was given to an event, as it is
// where nothing was imported with gaps.
func (s *salvage) dense() bool { return s.st != nil && s.st.Count == s.st.LastID }

// pruned returns the id up to which events were pruned, 0 when none was. Where
// imported ids have gaps it is what lies before the first event of the database.
func (s *salvage) pruned() int64 {
	if s.st == nil || s.st.Count == s.st.Stored {
		return 0
	}
	if s.dense() {
		return s.st.Count - s.st.Stored
	}
	first := int64(math.MaxInt64)
	for id, o := range s.events {
		if o.kind != fromLines {
			first = min(first, id)
		}
	}
	for _, id := range s.columns {
		first = min(first, id)
	}
	return first - 1
}

// lost returns the ids that were given to events above cut and are not in saved,
// which rises.
func (s *salvage) lost(cut int64, saved []int64) (lost []IDRange) {
	add := func(from, to int64) {
		if n := len(lost); n > 0 && lost[n-1].Last == from-1 {
			lost[n-1].Last = to
		} else {
			lost = append(lost, IDRange{from, to})
		}
	}
	if s.dense() {
		next := cut + 1
		for _, id := range saved {
			if id > next {
				add(next, id-1)
			}
			next = id + 1
		}
		if s.st != nil && s.st.Head >= next {
			add(next, s.st.Head)
		}
		return lost
	}
	known := append(slices.Clone(s.columns), s.named...)
	for id := range s.events {
		known = append(known, id)
	}
	slices.Sort(known)
	for _, id := range slices.Compact(known) {
		if _, found := slices.BinarySearch(saved, id); !found && id > cut {
			add(id, id)
		}
	}
	return lost
}

// addLines takes the setting of the lines; a damaged one leaves it as it is.
func (s *salvage) addLines(e *disk.Element) {
	start, err := disk.DecodeLogStart(e.Value)
	if err != nil {
		return
	}
	s.linesOff = start.Off()
}

// unfinished reports whether an id is of a batch that did not end, as far as the
// newest state can be believed. It was not given.
func (s *salvage) unfinished(id int64) bool {
	return s.kind == fromDatabase && s.st != nil && !s.badMetas && id > s.st.Head
}
