package redis

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gomodule/redigo/redis"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// entryID is the id of an entry: two numbers.
type entryID struct{ ms, seq uint64 }

func parseID(s string) (id entryID, err error) {
	ms, seq, ok := strings.Cut(s, "-")
	if id.ms, err = strconv.ParseUint(ms, 10, 64); err == nil && ok {
		id.seq, err = strconv.ParseUint(seq, 10, 64)
	}
	if err != nil || !ok {
		return id, fmt.Errorf("%q is not the id of an entry", s)
	}
	return id, nil
}

func (id entryID) String() string {
	return strconv.FormatUint(id.ms, 10) + "-" + strconv.FormatUint(id.seq, 10)
}

// bytes are 16, in the order of the ids.
func (id entryID) bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, id.ms), id.seq)
}

func idOf(b []byte) (id entryID, ok bool) {
	if len(b) != 16 {
		return id, false
	}
	return entryID{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, true
}

func (id entryID) less(other entryID) bool {
	return id.ms < other.ms || id.ms == other.ms && id.seq < other.seq
}

// entry is an entry as Redis gives it: names and values in turn; nil when it was
// deleted while it was pending.
type entry struct {
	id     entryID
	fields [][]byte
}

// entriesOf reads a list of [id, [name, value, …]].
func entriesOf(reply any, err error) (list []entry, _ error) {
	values, err := redis.Values(reply, err)
	if errors.Is(err, redis.ErrNil) {
		return nil, nil
	}
	for _, v := range values {
		if v == nil {
			continue // XAUTOCLAIM of Redis 6.2: deleted
		}
		pair, e := redis.Values(v, nil)
		if e != nil || len(pair) != 2 {
			return nil, fmt.Errorf("not an entry: %v", v)
		}
		text, e := redis.String(pair[0], nil)
		if e != nil {
			return nil, e
		}
		var one entry
		if one.id, err = parseID(text); err != nil {
			return nil, err
		}
		if pair[1] != nil {
			if one.fields, err = redis.ByteSlices(pair[1], nil); err != nil {
				return nil, err
			}
			if len(one.fields)%2 != 0 {
				return nil, fmt.Errorf("entry %s has a field without a value", text)
			}
		}
		list = append(list, one)
	}
	return list, err
}

// streamOf takes the entries of one stream out of the answer of XREAD and XREADGROUP.
func streamOf(reply any, err error) ([]entry, error) {
	values, err := redis.Values(reply, err)
	if errors.Is(err, redis.ErrNil) || err == nil && len(values) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pair, err := redis.Values(values[0], nil)
	if err != nil || len(pair) != 2 {
		return nil, fmt.Errorf("not the entries of a stream: %v", values[0])
	}
	return entriesOf(pair[1], nil)
}

// sum tells an entry from another one with its id.
func (e *entry) sum() []byte {
	h := sha256.New()
	for _, f := range e.fields {
		_ = binary.Write(h, binary.BigEndian, uint64(len(f))) // a hash takes everything
		h.Write(f)
	}
	return h.Sum(nil)[:16]
}

// autoIDs is when Redis could first have made ids of the time: those below are
// numbers that a publisher gave.
const autoIDs = 1_000_000_000_000

// content makes body and headers of an entry. The field of that name is the body;
// without one the body is a JSON object of the fields that are not headers, x-….
func (e *entry) content(bodyField string) (m trigger.Message) {
	m.Headers = map[string]string{}
	object := map[string]string{}
	for i := 0; i+1 < len(e.fields); i += 2 {
		name, value := string(e.fields[i]), e.fields[i+1]
		switch {
		case name == bodyField:
			m.Body = value
		case strings.HasPrefix(strings.ToLower(name), "x-"):
			m.Headers[name] = string(value)
		default:
			object[name] = string(value)
		}
	}
	if m.Body != nil {
		for k, v := range object {
			m.Headers[k] = v
		}
	} else {
		for k, v := range object {
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				m.Bad = fmt.Sprintf("field %q is not valid UTF-8, and there is no field %s", k, bodyField)
			}
		}
		m.Body, _ = json.Marshal(object) // of strings: no error
	}
	if e.id.ms >= autoIDs && e.id.ms < 1<<50 {
		m.At = time.UnixMilli(int64(e.id.ms))
	}
	return m
}

// fieldsOf is the way back: headers in byte order, then the body.
func fieldsOf(bodyField string, body []byte, headers map[string]string) (args []any) {
	for _, k := range adapter.Sorted(headers) {
		if k != bodyField {
			args = append(args, k, headers[k])
		}
	}
	return append(args, bodyField, body)
}
