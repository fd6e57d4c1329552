package store

import (
	"math"

	"thread/filter"
	"thread/index"
)

// Scan says what a scan goes through: the events of Selection with ids in (After,
// Upto].
type Scan struct {
	Selection   *Selection
	After, Upto int64
	// Slice ends the scan after some milliseconds, or earlier when a writer waits.
	Slice bool
	// Long says that this is not the first slice, so that it is worth reading ahead.
	Long bool
}

// Selection is a filter, and what has been learned about it. It may be kept from one
// transaction to the next: series ids never change their meaning. It is for one
// goroutine.
type Selection struct {
	Filter *filter.Filter // nil: everything matches
	// BySeries is whether the series say anything, ByType whether their types do, Times
	// and Contents whether the filter looks at created_at and content; nothing matches
	// before Earliest or after Latest, in milliseconds.
	BySeries, ByType bool
	Times, Contents  bool
	Earliest, Latest int64

	Answers index.Answers
	Asked   int64 // how often the filter was asked about a series
	Reads   Reads // what was read so far
	Plan    any   // what the store keeps with it

	matcher *filter.Matcher
}

// Reads counts what scans read. A part that a later slice comes back to counts
// again.
type Reads struct {
	Transactions int64 // slices, in which writers get their turn in between
	Blocks       int64 // column blocks of up to 1024 events whose series were gone through
	BlocksPassed int64 // blocks that were passed over for their times
	Tail         int64 // events behind the last block whose series were gone through
	Events       int64 // events that were read, to match them or to return them
	Matched      int64 // events that were found
}

// NewSelection returns a selection by f, nil for everything. It uses the memory of
// spare, which is not needed any more, or may be nil: for thousands of filters in a
// row that is most of the work.
func NewSelection(f *filter.Filter, spare *Selection) *Selection {
	if f != nil && f.Text() == "" {
		f = nil
	}
	s := &Selection{Filter: f, Earliest: math.MinInt64, Latest: math.MaxInt64}
	if spare != nil {
		s.Answers, spare.Answers = spare.Answers, index.Answers{}
		s.Answers.Clear()
	}
	if f == nil {
		return s
	}
	columns := f.Columns()
	s.BySeries = len(columns) == 0
	for _, c := range columns {
		switch c {
		case "type", "subtype":
			s.BySeries, s.ByType = true, true
		case "source":
			s.BySeries = true
		case "content":
			s.Contents = true
		case "created_at":
			s.Times = true
			s.Earliest, s.Latest = millisRange(f.CreatedAtRange())
		}
	}
	s.ByType = s.ByType || s.BySeries && len(columns) == 0
	return s
}

// AskSeries asks the filter about a series and keeps the answer.
func (s *Selection) AskSeries(id uint32, v *index.SeriesView) index.Answer {
	s.Asked++
	answer := AnswerOf(s.Filter.Series(v.Source, v.Type, v.Subtype, v.HasSubtype))
	s.Answers.Set(id, answer)
	return answer
}

// AnswerOf returns a verdict as it is kept.
func AnswerOf(v filter.Verdict) index.Answer {
	switch v {
	case filter.No:
		return index.None
	case filter.Yes:
		return index.All
	}
	return index.Open
}

// Match reports whether an event matches, which its series leaves open. Row has the id
// and what BySeries (source, type and subtype), Times and Contents ask for.
func (s *Selection) Match(row *filter.Row) (bool, error) {
	if s.matcher == nil {
		s.matcher = s.Filter.Matcher()
	}
	return s.matcher.Match(row)
}
