package fsck

import (
	"thread/engine"
	"thread/index"
	"thread/internal/store"
)

// soundExtras takes what is damaged out of the extras: one record of a dedupe key
// would keep everybody from writing. Events up to cut were pruned, saved are the others
// that are there, in order. The expiry of keys is made again from the keys.
func (s *salvage) soundExtras(cut int64, saved []int64) {
	var sound []store.Extra
	for _, x := range s.extras {
		if x.Key == nil || len(x.Bucket) != 1 {
			sound = append(sound, x)
			continue
		}
		var err error
		switch x.Bucket[0] {
		case string(store.DedupeExpiry):
			continue
		case string(store.Dedupe):
			var r store.KeyRecord
			if r, err = store.DecodeKeyRecord(x.Key, x.Value); err == nil {
				at := r.ExpiryKey()
				sound = append(sound, store.Extra{Bucket: []string{string(store.DedupeExpiry)}, Key: at, Value: store.EncodeExpiry(at, x.Key)})
			}
		case string(store.Dead), string(store.Retries):
			if _, err = store.DecodeLetter(x.Key, x.Value); err == nil {
				_, _, err = store.SplitLetterKey(x.Key)
			}
		case string(store.Receipts):
			if _, ok := index.CheckSum(x.Key, x.Value); !ok {
				err = engine.ErrCorrupt
			}
		}
		if err != nil {
			s.problem("bucket %q: the record of %q is damaged", x.Bucket[0], x.Key)
			continue
		}
		sound = append(sound, x)
	}
	s.extras = sound
	s.soundAboveProgress(cut, saved)
	s.soundSchedules()
}
