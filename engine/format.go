package engine

import (
	"encoding/binary"
	"fmt"

	"thread/event"
	"thread/index"
	"thread/jsonlog"
)

// # Format of events.db
//
// A bbolt file with 4096-byte pages and the buckets below. All integers are
// big-endian; ids are positive int64. "crc" is always CRC-32C (Castagnoli) over
// the key and then the value up to the crc. bbolt's own page headers are in the
// byte order of the host that wrote them.
//
//	meta           format, state (below)
//	events         id, 8 bytes → event record
//	series         see package index
//	series_by_id   see package index
//	columns        see package index
//	subscriptions  'c' and the consumer's id → subscription record
//	progress       'c' and the consumer's id → progress record
//	checked        'c' and the consumer's id → checked record, advice only
//
// These are made when they are first needed:
//
//	deliveries     'c' and the consumer's id → delivery record
//	dead           letter key → Failures and a crc: the dead letters. Their events
//	               stay in events
//	retries        letter key → the same: dead letters that were sent back and are
//	               not settled yet. A letter is in one of the two buckets
//	dedupe         'k' and a dedupe key → key record
//	dedupe_expiry  when the key expires, 8 bytes of milliseconds since 1970, and
//	               the event's id, 8 bytes → 'k' and the dedupe key, crc
//	scheduled      what is to be pushed later, see schedule.go
//	schedules      what is to be pushed again and again, see schedule.go
//	receipts       token of an offer, 16 bytes → receipt (see offer.go)
//
// A letter key is 'c', the length of the consumer's id in 2 bytes, that id, and
// the event's id in 8 bytes.
//
// An event is visible if and only if its id is at most state.head. Whatever
// lies above was left by a batch that a crash cut short; the next writer clears
// it.
//
// meta "format", valid if and only if it has 8 bytes and begins with "thrd":
//
//	magic    4  "thrd"
//	version  4  formatVersion. A larger one is ErrNewerFormat, whatever follows
//
// meta "state", valid if and only if it has 76 bytes and the crc fits:
//
//	head     8  the newest visible id, 0 if there was never one
//	last_id  8  the highest id ever given, >= head; the next is last_id + 1
//	count    8  how many events were ever stored
//	stored   8  how many of them are still here
//	tail     8  how many visible events lie behind the last column block, < 1024
//	log      32 events.jsonl after its latest append: size in bytes, lines,
//	            base (offset of our first line), first (its id)
//	crc      4
//
// An event record is valid if and only if its crc fits and it has one of these
// forms:
//
//	form        1  1
//	series      4  series id
//	created_at  8  milliseconds since 1970; the text is event.AppendTime of it
//	content     n
//	crc         4
//
//	form        1  2
//	series      4
//	created_at     uvarint length, then the text, as it was imported
//	content     n
//	crc         4
const (
	formatVersion = 1
	formatMagic   = "thrd"
	stateBytes    = 9*8 + 4

	recordExact    = 1
	recordVerbatim = 2
)

var (
	keyFormat = []byte("format")
	keyState  = []byte("state")

	bucketMeta          = []byte("meta")
	bucketEvents        = []byte("events")
	bucketSeries        = []byte("series")
	bucketSeriesByID    = []byte("series_by_id")
	bucketColumns       = []byte("columns")
	bucketSubscriptions = []byte("subscriptions")
	bucketProgress      = []byte("progress")

	bucketDeliveries   = []byte("deliveries")
	bucketDead         = []byte("dead")
	bucketRetries      = []byte("retries")
	bucketDedupe       = []byte("dedupe")
	bucketDedupeExpiry = []byte("dedupe_expiry")
	bucketReceipts     = []byte("receipts")

	// Every database has these; the others come with their first use.
	ourBuckets = [][]byte{bucketMeta, bucketEvents, bucketSeries, bucketSeriesByID, bucketColumns, bucketSubscriptions, bucketProgress}
)

func encodeFormat() []byte {
	return binary.BigEndian.AppendUint32([]byte(formatMagic), formatVersion)
}

func checkFormat(v []byte) error {
	if len(v) != 8 || string(v[:4]) != formatMagic {
		return ErrNotDatabase
	}
	if n := binary.BigEndian.Uint32(v[4:]); n > formatVersion {
		return fmt.Errorf("%w: format %d, this program knows %d", ErrNewerFormat, n, formatVersion)
	}
	return nil
}

// state is what every writer changes and every reader starts from.
type state struct {
	head, lastID, count, stored, tail int64
	log                               jsonlog.Position
}

func (s *state) encode() []byte {
	v := make([]byte, 0, stateBytes)
	for _, n := range []int64{s.head, s.lastID, s.count, s.stored, s.tail, s.log.Size, s.log.Lines, s.log.Base, s.log.First} {
		v = binary.BigEndian.AppendUint64(v, uint64(n))
	}
	return index.AppendSum(v, keyState)
}

func decodeState(v []byte) (s state, err error) {
	b, ok := index.CheckSum(keyState, v)
	if !ok || len(v) != stateBytes {
		return s, fmt.Errorf("%w: state record", ErrCorrupt)
	}
	for i, p := range []*int64{&s.head, &s.lastID, &s.count, &s.stored, &s.tail, &s.log.Size, &s.log.Lines, &s.log.Base, &s.log.First} {
		*p = int64(binary.BigEndian.Uint64(b[i*8:]))
	}
	if s.head < 0 || s.lastID < s.head || s.count < s.stored || s.stored < 0 || s.tail < 0 || s.tail >= index.BlockEvents {
		return s, fmt.Errorf("%w: state record", ErrCorrupt)
	}
	return s, nil
}

func eventKey(id int64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(id)) }

// timeText is a created_at in both of its forms. The text and the milliseconds
// of the latest one are kept, because neighbours often share it.
type timeText struct {
	text  string
	ms    int64
	exact bool // text is event.AppendTime of ms; otherwise ms means nothing
}

func (t *timeText) setText(s string) {
	if s != t.text || s == "" {
		t.text = s
		t.ms, t.exact = event.ParseTime(s)
	}
}

func (t *timeText) setMillis(ms int64) {
	if ms != t.ms || !t.exact {
		var buf [len(event.TimeLayout)]byte
		*t = timeText{text: string(event.AppendTime(buf[:0], ms)), ms: ms, exact: true}
	}
}

// of returns the created_at text of r, which does not alias the database.
func (t *timeText) of(r *record) string {
	if r.verbatim != nil {
		return string(r.verbatim)
	}
	t.setMillis(r.at)
	return t.text
}

// recordBytes is an upper bound of the length of e's record.
func recordBytes(e *event.Event) int {
	return 1 + 4 + max(8, binary.MaxVarintLen64+len(e.CreatedAt)) + len(e.Content) + 4
}

// appendRecord appends the event record for key.
func appendRecord(b, key []byte, series uint32, at *timeText, content string) []byte {
	start := len(b)
	if at.exact {
		b = append(b, recordExact)
		b = binary.BigEndian.AppendUint32(b, series)
		b = binary.BigEndian.AppendUint64(b, uint64(at.ms))
	} else {
		b = append(b, recordVerbatim)
		b = binary.BigEndian.AppendUint32(b, series)
		b = binary.AppendUvarint(b, uint64(len(at.text)))
		b = append(b, at.text...)
	}
	b = append(b, content...)
	return binary.BigEndian.AppendUint32(b, index.Sum(key, b[start:]))
}

// record is a decoded event record. The slices alias the database's pages.
type record struct {
	series   uint32
	at       int64  // created_at in milliseconds, unless
	verbatim []byte // is not nil
	content  []byte
}

func decodeRecord(key, v []byte) (r record, err error) {
	b, ok := index.CheckSum(key, v)
	if !ok || len(b) < 5 {
		return r, corruptEvent(key)
	}
	r.series = binary.BigEndian.Uint32(b[1:])
	form, b := b[0], b[5:]
	switch form {
	case recordExact:
		if len(b) < 8 {
			return r, corruptEvent(key)
		}
		r.at, r.content = int64(binary.BigEndian.Uint64(b)), b[8:]
	case recordVerbatim:
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return r, corruptEvent(key)
		}
		r.verbatim, r.content = b[w:w+int(n):w+int(n)], b[w+int(n):]
	default:
		return r, corruptEvent(key)
	}
	return r, nil
}

// recordMillis returns the created_at of a record of at least 5 bytes, and
// whether it has milliseconds, without a look at the checksum.
func recordMillis(v []byte) (ms int64, exact bool) {
	if v[0] != recordExact || len(v) < 13 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(v[5:])), true
}

func corruptEvent(key []byte) error {
	if len(key) == 8 {
		return fmt.Errorf("%w: event %d", ErrCorrupt, int64(binary.BigEndian.Uint64(key)))
	}
	return fmt.Errorf("%w: event key %x", ErrCorrupt, key)
}
