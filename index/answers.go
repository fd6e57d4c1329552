package index

// Answer is what a filter says of a series.
type Answer uint8

const (
	Unasked Answer = iota
	None           // nothing in it matches
	All            // everything in it matches
	Open           // that depends on the event
)

// Table holds a value for some series ids, in pages, because ids are never given
// again: those in use may lie far above how many there are. The zero Table is
// empty.
type Table[T any] struct{ groups []*tableGroup[T] }

const (
	pageIDs    = 1 << 10
	groupPages = 1 << 8
)

type (
	tablePage[T any]  [pageIDs]T
	tableGroup[T any] [groupPages]*tablePage[T]
)

// page returns the page that id is on, nil when nothing was set there.
func (t *Table[T]) page(id uint32) *tablePage[T] {
	if g := int(id / (pageIDs * groupPages)); g < len(t.groups) && t.groups[g] != nil {
		return t.groups[g][id/pageIDs%groupPages]
	}
	return nil
}

// Get returns the value of id, the zero value when none was set.
func (t *Table[T]) Get(id uint32) (v T) {
	if p := t.page(id); p != nil {
		v = p[id%pageIDs]
	}
	return v
}

// At returns the place of id's value.
func (t *Table[T]) At(id uint32) *T { return &t.make(id)[id%pageIDs] }

func (t *Table[T]) make(id uint32) *tablePage[T] {
	if p := t.page(id); p != nil {
		return p
	}
	g := int(id / (pageIDs * groupPages))
	if n := g + 1 - len(t.groups); n > 0 {
		t.groups = append(t.groups, make([]*tableGroup[T], n)...)
	}
	if t.groups[g] == nil {
		t.groups[g] = new(tableGroup[T])
	}
	p := new(tablePage[T])
	t.groups[g][id/pageIDs%groupPages] = p
	return p
}

// pages calls fn for each page and the first id on it, in order.
func (t *Table[T]) pages(fn func(first uint32, p *tablePage[T])) {
	for g, group := range t.groups {
		if group == nil {
			continue
		}
		for i, p := range group {
			if p != nil {
				fn(uint32(g*groupPages+i)*pageIDs, p)
			}
		}
	}
}

// Answers says what a filter says of series. The zero value knows nothing.
type Answers struct {
	table Table[Answer]
	// A series up to rest that has no answer has None. Those up to rest that have
	// another lie in [low, high].
	rest, low, high uint32
	none            *tablePage[Answer] // a page of them, once there is a rest
}

var unasked tablePage[Answer] // is not written to

// page returns the answers for the ids on the page of id. It must not be changed.
func (a *Answers) page(id uint32) *tablePage[Answer] {
	if p := a.table.page(id); p != nil {
		return p
	}
	if id|(pageIDs-1) <= a.rest {
		return a.none
	}
	return &unasked
}

// Get returns the answer for a series.
func (a *Answers) Get(id uint32) Answer { return a.page(id)[id%pageIDs] }

// Set sets the answer for a series.
func (a *Answers) Set(id uint32, answer Answer) {
	if id <= a.rest && (id < a.low || id > a.high) {
		if answer == None {
			return
		}
		a.low, a.high = min(a.low, id), max(a.high, id)
	}
	p := a.table.page(id)
	if p == nil {
		from := *a.page(id)
		p = a.table.make(id)
		*p = from
	}
	p[id%pageIDs] = answer
}

// SetRest makes None the answer for all series up to rest that have none yet.
func (a *Answers) SetRest(rest uint32) {
	if rest <= a.rest {
		return
	}
	if a.none == nil {
		a.none = new(tablePage[Answer])
		for i := range a.none {
			a.none[i] = None
		}
	}
	if rest%pageIDs != pageIDs-1 && a.table.page(rest) == nil {
		a.table.make(rest)
	}
	a.rest, a.low, a.high = rest, ^uint32(0), 0
	a.table.pages(func(first uint32, p *tablePage[Answer]) {
		for i := range p {
			id := first + uint32(i)
			if id > rest {
				break
			}
			switch p[i] {
			case Unasked:
				p[i] = None
			case All, Open:
				a.low, a.high = min(a.low, id), max(a.high, id)
			}
		}
	})
}

// Rest returns up to which series all have an answer: those that were given none
// have None.
func (a *Answers) Rest() uint32 { return a.rest }

// Least returns the least series up to Rest that has another answer than None, 0
// when there is none.
func (a *Answers) Least() uint32 {
	if a.low > a.high {
		return 0
	}
	return a.low
}

// Clear forgets all answers and keeps the memory, unless it is much.
func (a *Answers) Clear() {
	n := 0
	a.table.pages(func(_ uint32, p *tablePage[Answer]) {
		clear(p[:])
		n++
	})
	if n > 16 {
		a.table = Table[Answer]{}
	}
	a.rest, a.low, a.high = 0, 0, 0
}

// Count returns how many series have been given each answer one by one.
func (a *Answers) Count() (n [Open + 1]int64) {
	a.table.pages(func(_ uint32, p *tablePage[Answer]) {
		for _, answer := range p {
			n[answer]++
		}
	})
	return n
}

// Next returns the smallest i >= from whose series may have events that match:
// its answer is not None. It is Count when there is none. This is the inner loop
// of every search.
func (b *Block) Next(from int, a *Answers) int {
	switch b.width {
	case 1:
		page := a.page(0)
		for i, s := range b.series[from:] {
			if page[s] != None {
				return from + i
			}
		}
	case 2:
		page, at := a.page(0), 0
		for i := from; i < b.Count; i++ {
			s := int(b.series[i*2])<<8 | int(b.series[i*2+1])
			if s/pageIDs != at {
				page, at = a.page(uint32(s)), s/pageIDs
			}
			if page[s%pageIDs] != None {
				return i
			}
		}
	default:
		return b.nextWide(from, a)
	}
	return b.Count
}

// nextWide is Next where there are many series. Few of them may be left, and those
// often lie close together.
func (b *Block) nextWide(from int, a *Answers) int {
	var page *tablePage[Answer]
	at := ^uint32(0)
	for i := from; i < b.Count; i++ {
		s := b.Series(i)
		if s <= a.rest && (s < a.low || s > a.high) {
			continue
		}
		if s/pageIDs != at {
			page, at = a.page(s), s/pageIDs
		}
		if page[s%pageIDs] != None {
			return i
		}
	}
	return b.Count
}
