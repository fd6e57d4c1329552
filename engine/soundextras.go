package engine

import (
	"bytes"

	"thread/index"
)

// soundExtras takes what is damaged out of the extras: one record of a dedupe key
// would keep everybody from writing. The expiry of keys is made anew from the keys.
func (s *salvage) soundExtras() {
	var sound []Extra
	for _, x := range s.extras {
		if x.Key == nil || len(x.Bucket) != 1 {
			sound = append(sound, x)
			continue
		}
		var err error
		switch x.Bucket[0] {
		case string(bucketDedupeExpiry):
			continue
		case string(bucketDedupe):
			var r keyRecord
			if r, err = decodeKeyRecord(x.Key, x.Value); err == nil {
				at := r.expiryKey()
				entry := index.AppendSum(bytes.Clone(x.Key), at)
				sound = append(sound, Extra{Bucket: []string{string(bucketDedupeExpiry)}, Key: at, Value: entry})
			}
		case string(bucketDead), string(bucketRetries):
			if _, err = decodeLetter(x.Key, x.Value); err == nil {
				_, _, err = splitLetterKey(x.Key)
			}
		case string(bucketDeliveries), string(bucketReceipts):
			if _, ok := index.CheckSum(x.Key, x.Value); !ok {
				err = ErrCorrupt
			}
		}
		if err != nil {
			s.problem("bucket %q: the record of %q is damaged", x.Bucket[0], x.Key)
			continue
		}
		sound = append(sound, x)
	}
	s.extras = sound
	s.soundSchedules()
}
