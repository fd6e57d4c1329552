package store

import (
	"encoding/binary"
	"fmt"
	"time"
)

func appendField(b []byte, tag uint64, value string) []byte {
	b = binary.AppendUvarint(b, tag)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

func uint64Text(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

func appendNumber(b []byte, tag uint64, n int64) []byte {
	if n == 0 {
		return b
	}
	return appendField(b, tag, uint64Text(uint64(n)))
}

func appendTime(b []byte, tag uint64, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return appendNumber(b, tag, t.UnixMilli())
}

func number(v []byte) (int64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: a number of %d bytes", ErrCorrupt, len(v))
	}
	return int64(binary.BigEndian.Uint64(v)), nil
}

// eachField calls fn for the fields of a record without its crc.
func eachField(b []byte, fn func(tag uint64, v []byte) error) error {
	for len(b) > 0 {
		tag, w := binary.Uvarint(b)
		if w <= 0 {
			return fmt.Errorf("%w: fields", ErrCorrupt)
		}
		n, w2 := binary.Uvarint(b[w:])
		if w2 <= 0 || n > uint64(len(b)-w-w2) {
			return fmt.Errorf("%w: fields", ErrCorrupt)
		}
		if err := fn(tag, b[w+w2:w+w2+int(n)]); err != nil {
			return err
		}
		b = b[w+w2+int(n):]
	}
	return nil
}
