package fsck

import "thread/internal/store/bolt/disk"

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
