package fsck

import (
	"fmt"

	"thread/internal/store/bolt/disk"
)

// In slices, pages are read at different moments, and which of them are in use at
// one moment is not seen. That is checked at the end under one lock, and without
// reading the leaf pages, which are nearly all of the file: the branch pages name
// them. A leaf page ends where the next page begins, and so must the header that
// was read in its slice say; only where it does not is it read again.

// note is told of every page that is read in a slice.
func (p *checkPages) note(g *disk.Page) {
	if n := int(g.ID) + 1 - len(p.overflow); n > 0 {
		p.overflow = append(p.overflow, make([]uint32, n)...)
	}
	p.overflow[g.ID] = uint32(g.Overflow) + 1
}

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
