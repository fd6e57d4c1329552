package expression

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// function is one that an expression may call.
type function struct {
	takes []Kind // of the arguments
	least int    // how many of them are needed
	gives Kind
	run   func(args []any) any
}

// functions by name. What they take was checked before they run.
var functions = map[string]function{
	"string": {[]Kind{Any}, 1, Text, func(a []any) any { return String(a[0]) }},
	"int":    {[]Kind{Any}, 1, Int, func(a []any) any { return toInt(a[0]) }},
	"float":  {[]Kind{Any}, 1, Float, func(a []any) any { return toFloat(a[0]) }},
	"len":    {[]Kind{Any}, 1, Int, func(a []any) any { return length(a[0]) }},
	"upper":  {[]Kind{Text}, 1, Text, func(a []any) any { return strings.ToUpper(a[0].(string)) }},
	"lower":  {[]Kind{Text}, 1, Text, func(a []any) any { return strings.ToLower(a[0].(string)) }},
	"trim": {[]Kind{Text, Text}, 1, Text, func(a []any) any {
		if len(a) == 1 {
			return strings.TrimSpace(a[0].(string))
		}
		return strings.Trim(a[0].(string), a[1].(string))
	}},
	"trimPrefix": {[]Kind{Text, Text}, 2, Text, func(a []any) any { return strings.TrimPrefix(a[0].(string), a[1].(string)) }},
	"trimSuffix": {[]Kind{Text, Text}, 2, Text, func(a []any) any { return strings.TrimSuffix(a[0].(string), a[1].(string)) }},
	"hasPrefix":  {[]Kind{Text, Text}, 2, Bool, func(a []any) any { return strings.HasPrefix(a[0].(string), a[1].(string)) }},
	"hasSuffix":  {[]Kind{Text, Text}, 2, Bool, func(a []any) any { return strings.HasSuffix(a[0].(string), a[1].(string)) }},
	"replace": {[]Kind{Text, Text, Text}, 3, Text, func(a []any) any {
		return strings.ReplaceAll(a[0].(string), a[1].(string), a[2].(string))
	}},
	"split":      {[]Kind{Text, Text}, 2, List, func(a []any) any { return split(a[0].(string), a[1].(string)) }},
	"join":       {[]Kind{List, Text}, 1, Text, join},
	"toJSON":     {[]Kind{Any}, 1, Text, func(a []any) any { return toJSON(a[0]) }},
	"fromJSON":   {[]Kind{Text}, 1, Any, func(a []any) any { return fromJSON(a[0].(string)) }},
	"toBase64":   {[]Kind{Text}, 1, Text, func(a []any) any { return base64.StdEncoding.EncodeToString([]byte(a[0].(string))) }},
	"fromBase64": {[]Kind{Text}, 1, Text, func(a []any) any { return fromBase64(a[0].(string)) }},
}

// call reads the arguments of a function.
func (r *reader) call(t token) code {
	f, ok := functions[t.s]
	if !ok {
		panic(fault(fmt.Sprintf("unknown function %s: there are %s", t.s, strings.Join(slices.Sorted(maps.Keys(functions)), ", "))))
	}
	r.expect("(")
	var args []code
	for !r.accept(")") {
		if args = append(args, r.expression(0)); !r.is(")") {
			r.expect(",")
		}
	}
	if len(args) < f.least || len(args) > len(f.takes) {
		panic(fault(fmt.Sprintf("%s has %d arguments, and not %d", t.s, f.least, len(args))))
	}
	for i, a := range args {
		if f.takes[i] != Any && a.kind != Any && a.kind != f.takes[i] {
			panic(fault(fmt.Sprintf("argument %d of %s is %s, and not %s", i+1, t.s, a.kind, f.takes[i])))
		}
	}
	return code{kind: f.gives, run: func(v Vars) any {
		values := make([]any, len(args))
		for i, a := range args {
			values[i] = a.run(v)
			if want := f.takes[i]; want != Any && kindOf(values[i]) != want {
				panic(fault(fmt.Sprintf("argument %d of %s is %s, and not %s", i+1, t.s, kindOf(values[i]), want)))
			}
		}
		return f.run(values)
	}}
}

func toInt(v any) any {
	switch v := v.(type) {
	case int64:
		return v
	case float64:
		if v > -1<<63 && v < 1<<63 {
			return int64(v)
		}
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n
		}
	}
	panic(fault(fmt.Sprintf("int of %.100q", String(v))))
}

func toFloat(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	case string:
		if f, err := strconv.ParseFloat(v, 64); err == nil && !math.IsNaN(f) {
			return f
		}
	}
	panic(fault(fmt.Sprintf("float of %.100q", String(v))))
}

func length(v any) any {
	switch v := v.(type) {
	case string:
		return int64(utf8.RuneCountInString(v))
	case []any:
		return int64(len(v))
	case map[string]any:
		return int64(len(v))
	case map[string]string:
		return int64(len(v))
	}
	panic(fault("len of " + kindOf(v).String()))
}

func split(s, by string) any {
	list := []any{}
	for part := range strings.SplitSeq(s, by) {
		list = append(list, part)
	}
	return list
}

func join(a []any) any {
	var parts []string
	for _, x := range a[0].([]any) {
		s, ok := x.(string)
		if !ok {
			panic(fault("join of a list with " + kindOf(x).String()))
		}
		parts = append(parts, s)
	}
	by := ""
	if len(a) == 2 {
		by = a[1].(string)
	}
	return strings.Join(parts, by)
}

func toJSON(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fault("it cannot be JSON: " + err.Error()))
	}
	return string(b)
}

func fromJSON(s string) any {
	v, err := JSON([]byte(s))
	if err != nil {
		panic(fault("it is not JSON: " + err.Error()))
	}
	return v
}

func fromBase64(s string) any {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || !utf8.Valid(b) {
		panic(fault("it is not base64 of a text"))
	}
	return string(b)
}
