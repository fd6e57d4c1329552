package bolt

import (
	"errors"
	"math"
	"slices"

	"thread/index"
	"thread/internal/store"
)

// The bounds of what is asked ahead.
const (
	// fewSeries is how many series a run may ask the filter about before it begins.
	fewSeries = 64
	// planAfter is after how many events it asks about as many series.
	planAfter = 8 * index.BlockEvents
	// maxSources is for how many series the keys of their sources are gone through.
	maxSources = 4096
	// maxTypes is how many types the filter is asked about.
	maxTypes = 256
)

// begin makes the plan for this transaction's newest event, and carries out what
// costs next to nothing.
func (s *search) begin() error {
	p := &s.plan
	if s.Filter == nil || !s.BySeries || p.head == s.tx.st.Head {
		return nil
	}
	last, err := s.tx.dict().LastVisible(s.tx.st.Head)
	if err != nil {
		return err
	}
	if p.first > p.head {
		p.first = p.head + 1
	}
	p.head, p.last, p.done = s.tx.st.Head, last, last <= s.Answers.Rest()
	p.asking = max(p.asking, s.Answers.Rest()+1)
	p.nextLook = max(p.nextLook, planAfter)
	if p.done {
		return nil
	}
	types, err := s.types()
	if err != nil {
		return err
	}
	if types.known && types.none {
		return s.ruleOut()
	}
	return s.askSources(fewSeries)
}

// planOn takes the next step of the plan when it is due. It returns false when the
// time was over before its end.
func (s *search) planOn() (bool, error) {
	p := &s.plan
	if p.done || s.Filter == nil || !s.BySeries || s.gone < p.nextLook {
		return true, nil
	}
	if !p.reduced {
		p.reduced = true
		if err := s.reduce(); err != nil || p.done {
			return true, err
		}
	}
	n, err := s.tx.dict().Len()
	if err != nil {
		return false, err
	}
	if left := min(n, int64(p.last-s.Answers.Rest())); left > s.gone {
		p.nextLook = left
		return true, nil
	}
	return askAll([]*search{s}, p.asking, p.last)
}

// ruleOut makes None the answer for all series that have none yet.
func (s *search) ruleOut() error {
	s.Answers.SetRest(s.plan.last)
	s.plan.done, s.plan.first = true, math.MaxInt64
	least := s.Answers.Least()
	if least == 0 {
		return nil
	}
	// First events are in the order of series ids. That series may have been dropped
	// since it was asked about.
	return s.tx.dict().Each(least, s.plan.last, func(_ uint32, v *index.SeriesView) (bool, error) {
		s.plan.first = v.First
		return false, nil
	})
}

// ask returns what the filter says of a series. The answer is kept after the series
// was found only: the number in a torn record can be billions.
func (s *search) ask(id uint32) (index.Answer, error) {
	if answer := s.Answers.Get(id); answer != index.Unasked {
		return answer, nil
	}
	v, err := s.tx.dict().View(id)
	if err != nil {
		return index.Unasked, err
	}
	return s.AskSeries(id, &v), nil
}

// errMany ends what turns out to be long.
var errMany = errors.New("more than a few")

// askSources asks about the series whose sources can match and rules out all
// others, unless these are more than most.
func (s *search) askSources(most int64) error {
	sources := index.Sources{Prefix: s.Filter.SourcePrefix()}
	sources.Low, sources.High, sources.Exact = s.Filter.SourceRange()
	if sources.High == "" && !sources.Exact && sources.Prefix == "" {
		return nil
	}
	var ids []int64
	err := s.tx.dict().BySource(sources, func(id uint32) error {
		if id <= s.plan.last {
			ids = append(ids, int64(id))
		}
		if int64(len(ids)) > most {
			return errMany
		}
		return nil
	})
	if errors.Is(err, errMany) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.askOnly(ids)
}

// askOnly asks about the series with these ids and rules out all others.
func (s *search) askOnly(ids []int64) error {
	slices.Sort(ids)
	for _, id := range ids {
		if _, err := s.ask(uint32(id)); err != nil {
			return err
		}
	}
	return s.ruleOut()
}

// types asks the filter about the types, unless they are many.
func (s *search) types() (*typeAnswers, error) {
	if s.ofTypes != nil {
		return s.ofTypes, nil
	}
	s.ofTypes = new(typeAnswers)
	if !s.ByType {
		return s.ofTypes, nil
	}
	t := typeAnswers{known: true, none: true}
	low, high := s.Filter.TypeRange()
	t.told = low != "" || high != ""
	n := 0
	err := s.tx.dict().EachType(low, high, func(v index.TypeView) (bool, error) {
		if n++; n > maxTypes {
			t = typeAnswers{}
			return false, nil
		}
		answer := store.AnswerOf(s.Filter.Type(v.Type, v.Subtype, v.HasSubtype))
		if answer != index.None {
			t.none, t.some = false, append(t.some, typeAnswer{v.ID, answer})
		}
		t.told = t.told || answer != index.Open
		return true, nil
	})
	*s.ofTypes = t
	return s.ofTypes, err
}

// reduce rules out the series that their sources or types rule out, where finding
// these is quick.
func (s *search) reduce() error {
	if err := s.askSources(maxSources); err != nil || s.plan.done {
		return err
	}
	types, err := s.types()
	if err != nil || !types.known || !types.told {
		return err
	}
	var of index.Table[index.Answer] // by the id of the type
	for _, t := range types.some {
		*of.At(t.id) = t.answer
	}
	var left []int64 // what is left, while it is little
	covered, err := s.tx.dict().EachTypeBlock(s.Answers.Rest(), func(b *index.Block) bool {
		for i := range b.Count {
			if a := of.Get(b.Series(i)); (a == index.All || a == index.Open) && b.ID(i) <= int64(s.plan.last) {
				left = append(left, b.ID(i))
			}
		}
		return len(left) <= maxSources
	})
	if err != nil {
		return err
	}
	if len(left) <= maxSources {
		err := s.tx.dict().Each(covered+1, s.plan.last, func(id uint32, _ *index.SeriesView) (bool, error) {
			left = append(left, int64(id))
			return true, nil
		})
		if err != nil {
			return err
		}
		return s.askOnly(left)
	}
	_, err = s.tx.dict().EachTypeBlock(s.Answers.Rest(), func(b *index.Block) bool {
		for i := range b.Count {
			if id := b.ID(i); id <= int64(s.plan.last) {
				switch of.Get(b.Series(i)) {
				case index.None, index.Unasked:
					s.Answers.Set(uint32(id), index.None)
				case index.All:
					s.Answers.Set(uint32(id), index.All)
				}
			}
		}
		return true
	})
	return err
}

// Learn implements store.Tx. It leaves it when there are few series.
func (tx *Tx) Learn(all []*store.Selection) (done bool, err error) {
	n, err := tx.dict().Len()
	if err != nil || n < planAfter {
		return true, err
	}
	from, last := uint32(math.MaxUint32), uint32(0)
	var open []*search
	for _, v := range all {
		s := tx.search(v)
		s.setDeadline()
		if err := s.begin(); err != nil {
			return false, err
		}
		if s.Filter == nil || !s.BySeries || s.plan.done {
			continue
		}
		if !s.plan.reduced {
			s.plan.reduced = true
			if err := s.reduce(); err != nil {
				return false, err
			}
		}
		if !s.plan.done {
			open = append(open, s)
			from, last = min(from, s.plan.asking), max(last, s.plan.last)
		}
	}
	if len(open) == 0 {
		return true, nil
	}
	return askAll(open, from, last)
}

// askAll asks the filters of searches in one transaction about the series from one
// id to another, as far as the time allows.
func askAll(all []*search, from, last uint32) (ended bool, err error) {
	clock := all[0]
	ended = true
	err = clock.tx.dict().Each(from, last, func(id uint32, v *index.SeriesView) (bool, error) {
		for _, s := range all {
			if s.Answers.Get(id) == index.Unasked {
				s.AskSeries(id, v)
			}
		}
		from = id + 1
		if id%yieldEvery != 0 {
			return true, nil
		}
		ended = !clock.yields()
		return ended, clock.tx.ended()
	})
	for _, s := range all {
		s.plan.asking = max(s.plan.asking, from)
		if ended && err == nil {
			err = s.ruleOut()
		}
	}
	return ended, err
}
