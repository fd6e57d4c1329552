package filter

import "strings"

// Explanation says how a filter is answered.
type Explanation struct {
	Columns  []string `json:"columns"`  // the columns it reads
	CanFail  bool     `json:"can_fail"` // an event may make it end in an error
	Parts    []Part   `json:"parts"`    // the conditions that AND joins, in order
	Warnings []string `json:"warnings"` // legal, but probably not what was meant
}

// Part is one of the conditions that a filter joins with AND.
type Part struct {
	Text   string `json:"text"`
	Offset int    `json:"offset"` // of Text in the filter, in bytes
	Index  string `json:"index"`  // IndexSeries, IndexID, IndexTime or IndexNone
}

const (
	IndexSeries = "series" // answered once per series, without reading events
	IndexID     = "id"     // narrows the range of ids
	IndexTime   = "time"   // narrows the range of created_at: events far from it are not read
	IndexNone   = "none"   // every event that the other parts leave is looked at
)

// Explain describes the filter part by part.
func (f *Filter) Explain() Explanation {
	e := Explanation{Columns: f.Columns(), CanFail: f.CanFail(), Parts: []Part{}, Warnings: []string{}}
	if e.Columns == nil {
		e.Columns = []string{}
	}
	if f.root == nil {
		return e
	}
	f.explain(f.root, &e, false)
	v := warner{}
	v.visit(f.root)
	if v.json && !v.valid {
		e.Warnings = append(e.Warnings, "an event whose text is not JSON makes the filter fail - put json_valid(content) AND in front")
	}
	if v.clock {
		e.Warnings = append(e.Warnings, "created_at has a T between date and time and datetime() a space, so on the same day created_at is always the greater - compare datetime(created_at)")
	}
	return e
}

// explain adds the parts of n. What follows a part that may fail narrows no range:
// the failure must not be lost.
func (f *Filter) explain(n *node, e *Explanation, afterFailing bool) {
	if n.op == opAnd {
		f.explain(n.left, e, afterFailing)
		f.explain(n.right, e, afterFailing || n.left.fails)
		return
	}
	p := Part{Text: strings.TrimRight(f.text[n.start:n.end], " \t\r\n\f"), Offset: n.start, Index: IndexNone}
	switch s := (span[intRange]{all: allInts, and: intRange.and, or: intRange.or, leaf: idRange}); {
	case n.uses&^seriesColumns == 0 && !n.now:
		p.Index = IndexSeries
	case !afterFailing && s.of(n, true) != allInts:
		p.Index = IndexID
	case !afterFailing && rangeOf(n, colCreatedAt) != (textRange{}):
		p.Index = IndexTime
	}
	e.Parts = append(e.Parts, p)
}

// warner finds what is valid and seldom meant.
type warner struct {
	json  bool // reads JSON in a way that can fail
	valid bool // asks json_valid somewhere
	clock bool // compares created_at with datetime()
}

func (w *warner) visit(n *node) {
	if n == nil {
		return
	}
	switch n.op {
	case opArrow, opArrowText:
		w.json = true
	case opCall:
		switch n.fn {
		case fnJSONExtract, fnJSONType, fnJSONArrayLength:
			w.json = true
		case fnJSONValid:
			w.valid = true
		}
	case opLt, opLe, opGt, opGe, opBetween:
		other := n.right
		if n.right.op == opColumn {
			other = n.left
		}
		if (n.left.op == opColumn && n.left.col == colCreatedAt || n.right.op == opColumn && n.right.col == colCreatedAt) &&
			other.op == opCall && other.fn == fnDateTime {
			w.clock = true
		}
	}
	w.visit(n.left)
	w.visit(n.right)
	for _, a := range n.args {
		w.visit(a)
	}
	if n.aux != nil {
		w.visit(n.aux.high)
	}
}
