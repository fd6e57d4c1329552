// Package expression computes values of messages and events: for map, headers and key in
// the files of thread-bridge. The language is expr (https://expr-lang.org); the edge
// build leaves it out.
package expression

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// JSON reads a JSON value as expressions see it: whole numbers that fit are int64,
// so that no digit of a number of an order is lost.
func JSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the value")
	}
	return numbers(v)
}

// numbers replaces json.Number.
func numbers(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n, nil
		}
		return v.Float64()
	case []any:
		for i := range v {
			if v[i], err = numbers(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = numbers(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// String returns a value as text: a text itself, numbers in their digits without an
// exponent where that is at most 21 long, lists and maps as JSON, nil as "nil".
func String(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case string:
		return v
	case float64:
		if math.Abs(v) < 1e21 && (math.Abs(v) >= 1e-6 || v == 0) {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool, int, int64:
		return fmt.Sprint(v)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v) // infinite numbers within
	}
	return string(b)
}
