package fsck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"thread/engine"
	"thread/internal/progress"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

// In slices, pages are read at different moments, and which of them are in use at
// one moment is not seen. That is checked at the end under one lock, and without
// reading the leaf pages, which are nearly all of the file: the branch pages name
// them. A leaf page ends where the next page begins, and so must the header that
// was read in its slice say; only where it does not is it read again.

// account checks whether every page has exactly one use.
func (c *checker) account() error {
	if err := c.open(); err != nil {
		return err
	}
	a := &accounting{checkPages: &c.pages, begins: make([]bool, c.pages.walk.Meta.Pages)}
	a.begin(0)
	a.begin(1)
	a.tree(a.walk.Meta.Root, 0)
	for _, name := range a.names {
		if root := disk.BucketRoot(a.buckets[name]); root != 0 {
			a.tree(root, 0)
		}
	}
	w := a.walk
	a.begin(w.Meta.Freelist)
	w.Used = map[uint64]bool{0: true, 1: true} // what else is in use is known here
	a.free = make(map[uint64]bool)
	c.report.FreePages = w.Free(func(id uint64) {
		a.begin(id)
		a.free[id] = true
	})
	c.report.Pages = int64(w.Meta.Pages) - c.report.FreePages
	if a.err == nil {
		a.lengths()
	}
	if a.err != nil {
		c.fault("pages", a.err.Error()) // the check at once will say it better
	}
	return nil
}

type accounting struct {
	*checkPages
	begins []bool // by page: one begins there
	free   map[uint64]bool
	err    error
}

func (a *accounting) failf(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, args...)
	}
}

// begin notes that a page, alone or with others that belong to it, begins at id.
func (a *accounting) begin(id uint64) {
	switch {
	case id >= uint64(len(a.begins)):
		a.failf("page %d lies behind the last one in use", id)
	case a.begins[id]:
		a.failf("page %d is used twice", id)
	default:
		a.begins[id] = true
	}
}

// tree notes the pages of a tree. All leaf pages are equally deep, so that one of
// the children tells what the others are.
func (a *accounting) tree(id uint64, depth int) {
	if a.begin(id); a.err != nil {
		return
	}
	g, err := a.walk.Read(id)
	if err != nil || depth > disk.MaxTreeDepth {
		a.failf("page %d: %v", id, err)
		return
	}
	a.note(g)
	leaves := true
	for i := 0; g.Flags == disk.PageBranch && i < g.Count && a.err == nil; i++ {
		e, err := g.Element(i)
		if err != nil {
			a.failf("page %d: %v", id, err)
			return
		}
		if i == 0 {
			child, err := a.walk.Read(e.Child)
			if err != nil {
				a.failf("page %d: %v", e.Child, err)
				return
			}
			leaves = child.Flags == disk.PageLeaf
		}
		if leaves {
			a.begin(e.Child)
		} else {
			a.tree(e.Child, depth+1)
		}
	}
}

// lengths checks whether every page ends where the next one begins.
func (a *accounting) lengths() {
	for id := 0; id < len(a.begins) && a.err == nil; {
		if !a.begins[id] {
			a.failf("page %d is neither in use nor free", id)
			return
		}
		next := id + 1
		for next < len(a.begins) && !a.begins[next] {
			next++
		}
		if next > id+1 || id < len(a.overflow) && a.overflow[id] > 1 {
			a.length(uint64(id), uint64(next-id))
		}
		id = next
	}
}

// length checks whether the page has that many with it as it is to have.
func (a *accounting) length(id, want uint64) {
	if a.free[id] && want == 1 || id < uint64(len(a.overflow)) && uint64(a.overflow[id]) == want {
		return
	}
	if g, err := a.walk.Read(id); a.free[id] || err != nil || g.Overflow+1 != want {
		a.failf("page %d and those that belong to it end where no other begins", id)
	}
}

// checkDatabase checks the database in slices. A fault can be one that only
// seems so, as when a record moves from a bucket that was not looked at yet to one
// that was; so then, and where the file is replaced again and again, it is looked
// at once more, under one lock.
func checkDatabase(ctx context.Context, t *engine.Thread) (*checker, error) {
	for n := 1; ; n++ {
		c := newChecker(t)
		c.pages = checkPages{ctx: ctx, far: progress.Of(ctx), sliced: n <= 3}
		err := c.database()
		c.pages.close()
		c.pages.journal.Close()
		switch {
		case !c.pages.sliced || err == nil && len(c.report.Faults) == 0:
			return c, err
		case ctx.Err() != nil || errors.Is(err, engine.ErrBusy) || errors.Is(err, engine.ErrClosed):
			return nil, err
		case !errors.Is(err, errReplaced):
			n = 3
		}
	}
}

// database checks the pages and what is in them.
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
		if store.Essential(store.Table(name)) {
			continue
		}
		if err := c.foreign(name); err != nil {
			return err
		}
	}
	c.contentsBefore(math.MaxInt64)
	c.orphanEntries()
	c.aboveProgress()
	if c.pages.sliced {
		return c.account()
	}
	w := c.pages.walk
	c.report.FreePages = w.Free(nil)
	c.report.Pages = int64(len(w.Used)) - c.report.FreePages
	for id := range w.Meta.Pages {
		if !w.Used[id] {
			w.Faultf(id, "", "is neither in use nor free")
		}
	}
	return nil
}
