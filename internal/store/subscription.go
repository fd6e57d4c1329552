package store

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"thread/event"
	"thread/index"
)

// Subscription is a consumer's subscription. Table subscriptions, by [ConsumerKey]; the
// sequence of the table is the greatest Ordinal so far.
//
// A record is valid if and only if its crc fits and it consists of fields in rising
// order of their tags, followed by a crc of 4 bytes.
type Subscription struct {
	Consumer     string
	Handler      string
	Filter       *string
	Timeout      time.Duration
	AckOnSuccess bool
	Paused       bool
	Lane         string
	Key          string
	Parallel     int64
	WarnAfter    *time.Duration
	Pull         bool
	MaxAttempts  int64

	Ordinal uint64            // subscriptions are listed in the order they were made
	Unknown map[uint64][]byte // fields of a newer version, kept as they are
}

const (
	fieldOrdinal      = 1 // 8 bytes
	fieldHandler      = 2
	fieldFilter       = 3
	fieldTimeout      = 4 // 8 bytes, nanoseconds
	fieldAckOnSuccess = 5 // empty
	fieldPaused       = 6 // empty
	fieldLane         = 7
	fieldOrderKey     = 8
	fieldParallel     = 9  // 8 bytes
	fieldWarnAfter    = 10 // 8 bytes, nanoseconds
	fieldPull         = 11 // empty
	fieldMaxAttempts  = 12 // 8 bytes
)

// Where returns the text of the filter, "" when there is none.
func (s *Subscription) Where() string {
	if s.Filter == nil {
		return ""
	}
	return *s.Filter
}

// Encode returns the record.
func (s *Subscription) Encode() []byte {
	b := appendField(nil, fieldOrdinal, uint64Text(s.Ordinal))
	b = appendField(b, fieldHandler, s.Handler)
	if s.Filter != nil {
		b = appendField(b, fieldFilter, *s.Filter)
	}
	if s.Timeout != 0 {
		b = appendField(b, fieldTimeout, uint64Text(uint64(s.Timeout)))
	}
	if s.AckOnSuccess {
		b = appendField(b, fieldAckOnSuccess, "")
	}
	if s.Paused {
		b = appendField(b, fieldPaused, "")
	}
	if s.Lane != "" {
		b = appendField(b, fieldLane, s.Lane)
	}
	if s.Key != "" {
		b = appendField(b, fieldOrderKey, s.Key)
	}
	b = appendNumber(b, fieldParallel, s.Parallel)
	if s.WarnAfter != nil {
		b = appendField(b, fieldWarnAfter, uint64Text(uint64(*s.WarnAfter)))
	}
	if s.Pull {
		b = appendField(b, fieldPull, "")
	}
	b = appendNumber(b, fieldMaxAttempts, s.MaxAttempts)
	tags := make([]uint64, 0, len(s.Unknown))
	for tag := range s.Unknown {
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	for _, tag := range tags {
		b = appendField(b, tag, string(s.Unknown[tag]))
	}
	return index.AppendSum(b, ConsumerKey(s.Consumer))
}

// DecodeSubscription reads a record; ErrCorrupt if it is not valid.
func DecodeSubscription(key, value []byte) (*Subscription, error) {
	bad := func() (*Subscription, error) { return nil, fmt.Errorf("%w: subscription %q", ErrCorrupt, key) }
	b, ok := index.CheckSum(key, value)
	if !ok || len(key) == 0 || key[0] != 'c' {
		return bad()
	}
	s := &Subscription{Consumer: string(key[1:])}
	for len(b) > 0 {
		tag, w := binary.Uvarint(b)
		if w <= 0 {
			return bad()
		}
		n, w2 := binary.Uvarint(b[w:])
		if w2 <= 0 || n > uint64(len(b)-w-w2) {
			return bad()
		}
		v := b[w+w2 : w+w2+int(n)]
		b = b[w+w2+int(n):]
		switch tag {
		case fieldOrdinal, fieldTimeout, fieldParallel, fieldWarnAfter, fieldMaxAttempts:
			if n != 8 {
				return bad()
			}
			switch u := binary.BigEndian.Uint64(v); tag {
			case fieldOrdinal:
				s.Ordinal = u
			case fieldTimeout:
				s.Timeout = time.Duration(u)
			case fieldWarnAfter:
				d := time.Duration(u)
				s.WarnAfter = &d
			case fieldMaxAttempts:
				s.MaxAttempts = int64(u)
			default:
				s.Parallel = int64(u)
			}
		case fieldOrderKey:
			s.Key = string(v)
		case fieldHandler:
			s.Handler = string(v)
		case fieldFilter:
			s.Filter = event.Text(string(v))
		case fieldAckOnSuccess:
			s.AckOnSuccess = true
		case fieldPaused:
			s.Paused = true
		case fieldPull:
			s.Pull = true
		case fieldLane:
			s.Lane = string(v)
		default:
			if s.Unknown == nil {
				s.Unknown = make(map[uint64][]byte)
			}
			s.Unknown[tag] = slices.Clone(v)
		}
	}
	return s, nil
}

// SortSubscriptions puts subscriptions in the order they were made.
func SortSubscriptions(list []*Subscription) {
	slices.SortFunc(list, func(a, b *Subscription) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
}

// Options returns what a subscription has besides its handler and filter, in a form
// that DecodeSubscription reads, or nil when that is nothing.
func (s *Subscription) Options() []byte {
	rest := *s
	rest.Handler, rest.Filter, rest.Ordinal = "", nil, 0
	none := Subscription{Consumer: s.Consumer}
	if b := rest.Encode(); string(b) != string(none.Encode()) {
		return b
	}
	return nil
}
