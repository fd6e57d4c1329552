package index

import (
	"encoding/binary"
	"fmt"
)

// Sources says where the sources of some series lie: low <= source, and source <
// high unless high is empty; only low if Exact. They begin with Prefix when their
// ASCII letters are put in lower case.
type Sources struct {
	Low, High string
	Exact     bool
	Prefix    string
}

// BySource calls fn for the series in s, in the order of their sources. Sources
// longer than a key holds may be reported although they lie outside.
func (d *Dictionary) BySource(s Sources, fn func(id uint32) error) error {
	if err := d.Flush(0); err != nil {
		return err
	}
	byKey, err := d.byKey.bucket()
	if err != nil {
		return err
	}
	from, _ := appendKeyPrefix([]byte{}, s.Low)
	var to []byte
	switch {
	case s.Exact && len(s.Low) <= maxKeyField:
		from, to = append(from, 0, 1), append(append([]byte{}, from...), 0, 2)
	case s.High != "" && len(s.High) <= maxKeyField:
		to, _ = appendKeyPrefix(nil, s.High)
	}
	prefix := s.Prefix[:min(len(s.Prefix), maxPrefix)]
	for from != nil {
		next := []byte(nil)
		err := Range(byKey, from, func(k, v []byte) (more bool, err error) {
			if to != nil && string(k) >= string(to) {
				return false, nil
			}
			if !foldsTo(k, prefix) {
				next = nextFolded(k, prefix)
				return false, nil
			}
			if len(v) != 4 {
				return false, fmt.Errorf("%w: series entry of %d bytes", ErrDamaged, len(v))
			}
			return true, fn(binary.BigEndian.Uint32(v))
		})
		if err != nil {
			return err
		}
		if next != nil && string(next) <= string(from) {
			return fmt.Errorf("%w: bucket series is out of order", ErrDamaged)
		}
		from = next
	}
	return nil
}

// maxPrefix is how much of a prefix is looked at.
const maxPrefix = 1024

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// foldsTo reports whether key begins with prefix, which is in lower case, when
// letters do not count as different for their case.
func foldsTo(key []byte, prefix string) bool {
	if len(key) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if lower(key[i]) != prefix[i] {
			return false
		}
	}
	return true
}

// nextFolded returns the least text above key that folds to prefix and is nothing
// more, nil when there is none. Key does not fold to prefix.
func nextFolded(key []byte, prefix string) []byte {
	turn := -1 // the last place where the lower case is above what key has
	at := 0
	for ; at < len(prefix); at++ {
		if at == len(key) || key[at] < upper(prefix[at]) {
			break // key, and then the least that continues it
		}
		if key[at] < prefix[at] {
			turn = at
		}
		if lower(key[at]) != prefix[at] {
			if turn < 0 {
				return nil
			}
			at = turn
			break
		}
	}
	next := make([]byte, len(prefix))
	for i := range next {
		switch {
		case i < at:
			next[i] = key[i]
		case i == at && i == turn:
			next[i] = prefix[i]
		default:
			next[i] = upper(prefix[i])
		}
	}
	return next
}
