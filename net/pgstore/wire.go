package pgstore

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgconn"
)

// value is an argument of a statement, in the binary form of its type.
type value struct {
	oid  uint32
	data []byte // nil: NULL
}

// often is a statement that most transactions send. Its plan must be a good one however many rows
// there will be, as the server keeps it: one row by its primary key, or a few in its order.
func often(text string, args ...value) statement { return statement{sql: text, args: args, kept: true} }

// The types, by their numbers in pg_type.
const (
	oidBytea      = 17
	oidInt8       = 20
	oidText       = 25
	oidByteaArray = 1001
	oidTextArray  = 1009
	oidInt8Array  = 1016
)

func text(s string) value { return value{oidText, append([]byte{}, s...)} }

func int8(n int64) value { return value{oidInt8, binary.BigEndian.AppendUint64(nil, uint64(n))} }

// bytea is never NULL.
func bytea(b []byte) value { return value{oidBytea, notNil(b)} }

// optional is NULL for nil.
func optional(b []byte) value { return value{oidBytea, b} }

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// array is an array of one dimension. An element that is nil is NULL.
func array(oid, of uint32, elements [][]byte) value {
	b := binary.BigEndian.AppendUint32(nil, 1)
	b = binary.BigEndian.AppendUint32(b, 1) // there may be NULLs
	b = binary.BigEndian.AppendUint32(b, of)
	b = binary.BigEndian.AppendUint32(b, uint32(len(elements)))
	b = binary.BigEndian.AppendUint32(b, 1) // the first has number 1
	for _, e := range elements {
		if e == nil {
			b = binary.BigEndian.AppendUint32(b, 1<<32-1)
			continue
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(e))), e...)
	}
	return value{oid, b}
}

func byteas(list [][]byte) value { return array(oidByteaArray, oidBytea, list) }

func texts(list [][]byte) value { return array(oidTextArray, oidText, list) }

func int8s(list [][]byte) value { return array(oidInt8Array, oidInt8, list) }

// ids is int8s of numbers; NULL for nil.
func ids(list []int64) value {
	if list == nil {
		return value{oidInt8Array, nil}
	}
	elements := make([][]byte, len(list))
	for i, n := range list {
		elements[i] = int8(n).data
	}
	return int8s(elements)
}

// statement is one statement and its arguments.
type statement struct {
	sql  string
	args []value
	kept bool // the server keeps it, where it may
}

func sql(text string, args ...value) statement { return statement{sql: text, args: args} }

// binaryResults asks for the binary form of all columns: numbers of 8 bytes, and texts as
// they are.
var binaryResults = []int16{1}

// send asks the server to keep the statement, too, where it is to and asked does not have it yet.
func (s *statement) send(p *pgconn.Pipeline, on prepared, asked map[string]bool) {
	values, oids, formats := make([][]byte, len(s.args)), make([]uint32, len(s.args)), make([]int16, len(s.args))
	for i, a := range s.args {
		values[i], oids[i], formats[i] = a.data, a.oid, 1
	}
	switch known := on[s.sql]; {
	case on == nil || !s.kept:
		p.SendQueryParams(s.sql, values, oids, formats, binaryResults)
	case known != nil:
		p.SendQueryStatement(known, values, formats, binaryResults)
	default:
		name := nameOf(s.sql)
		if !asked[s.sql] {
			p.SendPrepare(name, s.sql, oids)
			asked[s.sql] = true
		}
		p.SendQueryPrepared(name, values, formats, binaryResults)
	}
}

// rowset is what a statement returned: rows of columns, nil for NULL.
type rowset struct {
	rows [][][]byte
	tag  string
}

func number(b []byte) int64 {
	if len(b) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}
