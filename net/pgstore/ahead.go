package pgstore

import (
	"fmt"

	"thread/internal/store"
)

// How many events are read ahead: together, and of each scan.
const (
	aheadEvents = 4096
	leastAhead  = 8
)

// ReadAhead implements store.Ahead. Scans of the same events read them once.
func (tx *tx) ReadAhead(scans []store.Scan) error {
	tx.ahead = map[*store.Selection]*readAhead{}
	var list, series []statement
	var reads []*readAhead
	known := map[string]*readAhead{}
	for i := range scans {
		q := &scans[i]
		end := max(q.After, min(q.Upto, tx.head))
		may, _, err := tx.verdicts(q.Selection)
		if err != nil {
			return err
		}
		if q.After == end || may != nil && len(may) == 0 {
			continue
		}
		s := span{q.After, end, may, q.Selection.Contents}
		key := fmt.Sprint(s)
		if known[key] == nil {
			a := &readAhead{after: q.After, upto: end, most: max(leastAhead, min(mostEvents, aheadEvents/len(scans)))}
			events := tx.reads(s, a.most)
			known[key], reads = a, append(reads, a)
			list, series = append(list, events), append(series, tx.seriesOfEvents(events)...)
		}
		tx.ahead[q.Selection] = known[key]
	}
	if len(list) == 0 {
		return tx.failed
	}
	r, err := tx.do(append(list, series...)...)
	if err != nil {
		return err
	}
	for i, a := range reads {
		a.list = foundIn(r[i])
	}
	for _, s := range r[len(list):] {
		tx.know(s.rows)
	}
	return nil
}
