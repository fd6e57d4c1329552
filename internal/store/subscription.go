package store

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"thread/internal/store/rec"
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

// Where returns the text of the filter, "" when there is none.
func (s *Subscription) Where() string {
	if s.Filter == nil {
		return ""
	}
	return *s.Filter
}

func (s *Subscription) walk(w *rec.Walk) {
	w.Uint(1, &s.Ordinal)
	w.Must(2, &s.Handler)
	w.Opt(3, &s.Filter)
	w.Duration(4, &s.Timeout)
	w.Flag(5, &s.AckOnSuccess)
	w.Flag(6, &s.Paused)
	w.Text(7, &s.Lane)
	w.Text(8, &s.Key)
	w.Int(9, &s.Parallel)
	w.OptDuration(10, &s.WarnAfter)
	w.Flag(11, &s.Pull)
	w.Int(12, &s.MaxAttempts)
	for _, tag := range slices.Sorted(maps.Keys(s.Unknown)) {
		w.Raw(tag, s.Unknown[tag])
	}
	w.Rest(func(tag uint64, v []byte) {
		if s.Unknown == nil {
			s.Unknown = make(map[uint64][]byte)
		}
		s.Unknown[tag] = slices.Clone(v)
	})
}

// Encode returns the record.
func (s *Subscription) Encode() []byte { return rec.Encode(ConsumerKey(s.Consumer), s.walk) }

// DecodeSubscription reads a record; ErrCorrupt if it is not valid.
func DecodeSubscription(key, value []byte) (*Subscription, error) {
	if len(key) == 0 || key[0] != 'c' {
		return nil, fmt.Errorf("%w: subscription %q", ErrCorrupt, key)
	}
	s := &Subscription{Consumer: string(key[1:])}
	if err := decode("subscription %q", key, value, s.walk); err != nil {
		return nil, err
	}
	return s, nil
}

// SortSubscriptions puts subscriptions in the order they were made.
func SortSubscriptions(list []*Subscription) {
	slices.SortFunc(list, func(a, b *Subscription) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
}

// Options returns what a subscription has next to its handler and filter, in a form
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
