package filter

import (
	"fmt"
	"math"
	"math/bits"

	"thread/filter/internal/like"
)

// maxTextBytes is SQLITE_MAX_LENGTH: SQLite fails when a text grows beyond it.
const maxTextBytes = 1_000_000_000

// The errors that an event can cause (docs/spec/filter.md, section 13).
var (
	errJSON     = fmt.Errorf("%w: malformed JSON", ErrRuntime)
	errOverflow = fmt.Errorf("%w: integer overflow in abs()", ErrRuntime)
	errPattern  = fmt.Errorf("%w: LIKE or GLOB pattern longer than %d bytes", ErrRuntime, like.MaxBytes)
	errTooBig   = fmt.Errorf("%w: a text grows beyond %d bytes", ErrRuntime, maxTextBytes)
)

func concat(a, b value) (value, error) {
	if a.k == null || b.k == null {
		return value{}, nil
	}
	x, y := a.text(), b.text()
	if len(x)+len(y) > maxTextBytes {
		return value{}, errTooBig
	}
	return textValue(x + y), nil
}

// arithmetic is a binary operator on numbers (docs/spec/filter.md, section 9).
func arithmetic(o op, a, b value) value {
	if a.k == null || b.k == null {
		return value{}
	}
	switch o {
	case opBitAnd:
		return intValue(a.int64() & b.int64())
	case opBitOr:
		return intValue(a.int64() | b.int64())
	case opShiftLeft:
		return intValue(shift(a.int64(), b.int64()))
	case opShiftRight:
		n := b.int64()
		if n == math.MinInt64 {
			n++ // its negative does not exist; any shift of 64 and more is the same
		}
		return intValue(shift(a.int64(), -n))
	case opRem:
		return remainder(a, b)
	}
	a, b = a.number(), b.number()
	if a.k == integer && b.k == integer {
		if i, ok := integerArithmetic(o, a.i, b.i); ok {
			return i
		}
	}
	x, y := a.asReal(), b.asReal()
	switch o {
	case opAdd:
		return realValue(x + y)
	case opSub:
		return realValue(x - y)
	case opMul:
		return realValue(x * y)
	}
	if y == 0 {
		return value{}
	}
	return realValue(x / y)
}

func (v value) asReal() float64 {
	if v.k == integer {
		return float64(v.i)
	}
	return v.f
}

// integerArithmetic gives the INTEGER result, or false if it overflows.
func integerArithmetic(o op, a, b int64) (value, bool) {
	switch o {
	case opAdd:
		c := a + b
		return intValue(c), (c > a) == (b > 0)
	case opSub:
		c := a - b
		return intValue(c), (c < a) == (b > 0)
	case opMul:
		hi, lo := bits.Mul64(magnitude(a), magnitude(b))
		neg := (a < 0) != (b < 0)
		if hi != 0 || lo > 1<<63 || lo == 1<<63 && !neg {
			return value{}, false
		}
		return intValue(a * b), true
	}
	if b == 0 {
		return value{}, true
	}
	if a == math.MinInt64 && b == -1 {
		return value{}, false
	}
	return intValue(a / b), true
}

func magnitude(i int64) uint64 {
	if i < 0 {
		return -uint64(i)
	}
	return uint64(i)
}

// remainder takes both operands as integers; the result is REAL if one of them
// is REAL as a number.
func remainder(a, b value) value {
	x, y := a.int64(), b.int64()
	if y == 0 {
		return value{}
	}
	if y == -1 {
		y = 1 // the least integer has no quotient by -1
	}
	if a.number().k == real || b.number().k == real {
		return realValue(float64(x % y))
	}
	return intValue(x % y)
}

// shift is << for a positive n and an arithmetic >> for a negative one.
func shift(i, n int64) int64 {
	switch {
	case n >= 64:
		return 0
	case n >= 0:
		return int64(uint64(i) << n)
	case n > -64:
		return i >> -n
	case i < 0:
		return -1
	}
	return 0
}
