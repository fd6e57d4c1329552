// Package disk is what lies in events.db, and reads it without bbolt. The package
// comment has the words and the buckets; entries are described where their code is: of
// events in format.go, group.go and pieces.go, of events.jsonl in logstart.go, of series
// and columns in package index, of consumers, deliveries and schedules in package store.
//
// # Words
//
//	event         what was pushed: an id, a time, source, type, subtype, content
//	head          the newest id that is visible
//	group         an entry of bucket events: several events; two groups are a pair
//	piece         a part of a large content, in bucket pieces
//	series        a distinct triple of source, type and subtype, and its id
//	block         the series ids of 1024 events, an entry of bucket columns
//	tail          the events behind the last block
//	record        a key and a value, which ends in a checksum of both
//	line          an event as JSON in events*.jsonl
//	meta page     one of the two pages that say where bbolt's trees begin
//	pending write drafts that another process may commit, a file in run/.offers
//	receipt       what became of it
//
// # Format of events.db
//
// A bbolt file with 4096-byte pages and the buckets below. All integers are
// big-endian; ids are positive int64. "crc" is always CRC-32C (Castagnoli) over
// the key and then the value up to the crc. bbolt's own page headers are in the
// byte order of the host that wrote them.
//
//	meta           format, state (below), lines (see logstart.go)
//	events         id of the first, 8 bytes → group of events, see group.go
//	series         see package index
//	series_by_id   see package index
//	columns        see package index
//	types          see package index
//	type_blocks    see package index
//	subscriptions  'c' and the consumer's id → subscription record
//	progress       'c' and the consumer's id → progress record
//	checked        'c' and the consumer's id → checked record, advice only
//
// These are made when they are first needed:
//
//	pieces         contents of more than 4096 bytes, see pieces.go
//	deliveries     'c' and the consumer's id → delivery record
//	dead           letter key → Failures and a crc: the dead letters. Their events
//	               stay in events
//	retries        letter key → the same: dead letters that were sent back and are
//	               not settled yet. A letter is in one of the two buckets
//	settled        letter key of the first id of a range → settled range, see settled.go
//	attempts       letter key → attempt, see attempt.go
//	dedupe         'k' and a dedupe key → key record
//	dedupe_expiry  when the key expires, 8 bytes of milliseconds since 1970, and
//	               the event's id, 8 bytes → 'k' and the dedupe key, crc
//	scheduled      what is to be pushed later, see schedule.go
//	schedules      what is to be pushed again and again, see schedule.go
//	receipts       token of a pending write, 16 bytes → receipt (see ../receipt.go)
//
// A letter key is 'c', the length of the consumer's id in 2 bytes, that id, and
// the event's id in 8 bytes.
//
// An event is visible if and only if its id is at most state.head. Whatever
// lies above was left by a batch that a crash cut short; the next writer clears
// it. It may be the end of a group.
//
// meta "format", valid if and only if it has 8 bytes and begins with "thrd":
//
//	magic    4  "thrd"
//	version  4  FormatVersion. A larger one is ErrNewerFormat, 1 and 2 are ErrOldFormat,
//	            whatever follows
//
// meta "series", see package index
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
package disk
