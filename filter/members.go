package filter

import "math"

// fewMembers is the length of an IN list up to which comparing one by one is as
// fast as looking up.
const fewMembers = 8

// literalSet is an IN list of literals next to a column, with BINARY collation.
type literalSet struct {
	texts   map[string]struct{}
	ints    map[int64]struct{}
	hasNull bool
}

// add keeps what a value of the column can be equal to: next to the texts of a
// TEXT column only texts, next to id only whole numbers.
func (s *literalSet) add(v value) {
	switch {
	case v.k == null:
		s.hasNull = true
	case s.texts != nil:
		s.texts[v.text()] = struct{}{}
	case v.k == integer:
		s.ints[v.i] = struct{}{}
	case v.k == real && v.f == math.Trunc(v.f) && v.f >= math.MinInt64 && v.f < -math.MinInt64:
		s.ints[int64(v.f)] = struct{}{}
	}
}

func (s *literalSet) member(x value) tri {
	if x.k == null {
		return unknown
	}
	var found bool
	if x.k == text {
		_, found = s.texts[x.s]
	} else {
		_, found = s.ints[x.i]
	}
	switch {
	case found:
		return isTrue
	case s.hasNull:
		return unknown
	}
	return isFalse
}
