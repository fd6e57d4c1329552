package fsck

import (
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// journalAlone takes what the journal has of a database that is lost. Zeros stand for the
// bytes that a record kept of a value in events.db: the sum of that value does not fit.
func (s *salvage) journalAlone() {
	var j bolt.Journal
	defer j.Close()
	all := byName(j.Alone(s.src))
	if len(all) == 0 {
		return
	}
	s.problem("%s is lost: saved is what %s has by itself", bolt.DatabaseName, bolt.JournalName)
	s.kind, s.badMetas = fromDatabase, true
	for _, of := range []struct {
		name []byte
		fn   func(e *disk.Element)
	}{{disk.BucketMeta, s.addState}, {disk.BucketSeriesByID, s.addSeries}, {disk.BucketColumns, s.addColumn}, {disk.BucketEvents, s.addEvent},
		{[]byte(store.Pieces), s.addPiece}, {disk.BucketSubscriptions, s.addSubscription}, {disk.BucketProgress, s.addProgress}} {
		all.merge(string(of.name), nil, func(e *disk.Element) {
			s.see(string(of.name), e)
			of.fn(e)
		}).rest()
	}
}

// addState takes the state and the setting of the lines from a journal alone.
func (s *salvage) addState(e *disk.Element) {
	switch string(e.Key) {
	case string(disk.KeyState):
		if state, err := disk.DecodeState(e.Value); err == nil {
			s.st, s.stateOf = &state, s.kind
		}
	case string(disk.KeyLines):
		s.addLines(e)
	}
}

// addLines takes the setting of the lines; a damaged one leaves it as it is.
func (s *salvage) addLines(e *disk.Element) {
	start, err := disk.DecodeLogStart(e.Value)
	if err != nil {
		return
	}
	s.linesOff = start.Off()
}
