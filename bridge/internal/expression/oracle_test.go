package expression

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/expr-lang/expr"
	"pgregory.net/rapid"
)

// env is what an expression sees in the oracle, which has structs for names.
type env struct {
	Headers map[string]string `expr:"headers"`
	Message any               `expr:"message"`
	Key     string            `expr:"key"`
	ID      int64             `expr:"id"`
}

var names = map[string]Kind{"headers": Texts, "message": Any, "key": Text, "id": Int}

const message = `{"n":7,"f":1.5,"s":"abc","t":true,"z":null,"l":[1,"b",2.5,null,[0]],"m":{"k":"v","n":-3,"d":{"e":"deep"}}}`

func values(t interface{ Fatal(...any) }) Vars {
	m, err := JSON([]byte(message))
	if err != nil {
		t.Fatal(err)
	}
	return Vars{"headers": map[string]string{"a": "x", "b": ""}, "message": m, "key": "k1", "id": int64(12)}
}

// run returns what an expression gives, or the error of either step.
func run(text string, vars Vars) (any, error) {
	p, err := Compile(text, names)
	if err != nil {
		return nil, err
	}
	return p.Run(vars)
}

// typeError is an error of compiling.
type typeError struct{ error }

func oracle(text string, vars Vars) (any, error) {
	// Its string() gives lists and large numbers as Go prints them.
	ours := expr.Function("string", func(a ...any) (any, error) { return String(widen(a[0])), nil }, new(func(any) string))
	p, err := expr.Compile(text, expr.Env(env{}), expr.DisableBuiltin("string"), ours)
	if err != nil {
		return nil, typeError{err}
	}
	return expr.Run(p, env{vars["headers"].(map[string]string), vars["message"], vars["key"].(string), vars["id"].(int64)})
}

// widen makes of a number of the oracle one of ours.
func widen(v any) any {
	if r := reflect.ValueOf(v); r.IsValid() && r.CanInt() {
		return r.Int()
	} else if r.IsValid() && r.Kind() == reflect.Slice {
		list := make([]any, r.Len())
		for i := range list {
			list[i] = widen(r.Index(i).Interface())
		}
		return list
	}
	return v
}

// same compares values, whatever the size of a number is.
func same(ours, theirs any) bool {
	if isNumber(ours) && isNumber(theirs) {
		a, b := reflect.ValueOf(ours), reflect.ValueOf(theirs)
		if a.CanInt() != b.CanInt() {
			return false
		}
		if a.CanInt() {
			return a.Int() == b.Int()
		}
		return a.Float() == b.Float() || math.IsNaN(a.Float()) && math.IsNaN(b.Float())
	}
	a, err := json.Marshal(ours)
	b, err2 := json.Marshal(theirs)
	if err != nil && err2 != nil { // infinite numbers within
		return fmt.Sprint(ours) == fmt.Sprint(theirs)
	}
	return err == nil && err2 == nil && string(a) == string(b)
}

func isNumber(v any) bool {
	r := reflect.ValueOf(v)
	return r.IsValid() && (r.CanInt() || r.CanFloat())
}

// pieces are expressions to be put together.
var pieces = []string{"1", "2", "0", "1.5", ".5", "2e2", `"abc"`, "'b'", "`c`", `""`, `"\u00e4\n"`, "true", "false", "nil", "key", "id", "message.n", "message.f", "message.s",
	"message.t", "message.z", "message.nosuch", "message.m.k", "message.m.n", "(message?.m?.d.e)", "(message.z?.x.y)", "message.z.x", "message.l[0]", "message.l[-1]",
	"message.l[9]", `message["s"]`, "message.l", "message.m", `headers["a"]`, "headers.b", "[1, 2]", `["a", key]`, "[]", "{a: 1}.a", "{}",
	"message?.[\"n\"]", "nosuch", "key.x", "id[0]", "message.s[0]"}

var operators = []string{"+", "-", "*", "/", "%", "**", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or", "&&", "||", "in", "not in", "contains", "not contains",
	"startsWith", "endsWith", "matches", "??", ". ", "=", "not"}

func expressions(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		if depth == 0 {
			return rapid.SampledFrom(pieces).Draw(t, "piece")
		}
		part := expressions(rapid.IntRange(0, depth-1).Draw(t, "depth"))
		a := part.Draw(t, "a")
		switch rapid.IntRange(0, 12).Draw(t, "kind") {
		case 0:
			return "(" + a + ")"
		case 1:
			return rapid.SampledFrom([]string{"-", "not ", "!", "+"}).Draw(t, "sign") + a
		case 2:
			return a + " ? " + part.Draw(t, "b") + " : " + part.Draw(t, "c")
		case 3:
			return rapid.SampledFrom([]string{"string", "int", "float", "len", "upper", "lower", "trim", "toBase64", "nosuch"}).Draw(t, "f") + "(" + a + ")"
		case 4:
			return rapid.SampledFrom([]string{"hasPrefix", "hasSuffix", "split", "join", "trim", "trimPrefix"}).Draw(t, "f") + "(" + a + ", " + part.Draw(t, "b") + ")"
		case 5:
			return "[" + a + ", " + part.Draw(t, "b") + "]"
		case 6:
			return a + "[" + part.Draw(t, "b") + "]"
		}
		return a + " " + rapid.SampledFrom(operators).Draw(t, "op") + " " + part.Draw(t, "b")
	})
}

// TestOracle: what is an expression here is one of expr's, and gives the same.
func TestOracle(t *testing.T) {
	values := values(t)
	given := 0
	rapid.Check(t, func(rt *rapid.T) {
		text := expressions(4).Draw(rt, "expression")
		ours, err := run(text, values)
		theirs, err2 := oracle(text, values)
		if err != nil && strings.Contains(err.Error(), "\n") {
			rt.Errorf("%s: the error has lines: %v", text, err)
		}
		if err == nil {
			given++
		}
		if typed, ok := err2.(typeError); ok && err == nil && !strings.Contains(typed.Error(), "unexpected") {
			return // it knows more about types, before it runs
		}
		if err == nil && (err2 != nil || !same(ours, theirs)) {
			rt.Errorf("%s: %v (%v), and %v (%v)", text, ours, err, theirs, err2)
		}
	})
	if given == 0 {
		t.Error("no expression gave anything")
	}
}
