package expression

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestOwn: where expr does otherwise, and what its oracle cannot tell.
func TestOwn(t *testing.T) {
	vars := values(t)
	big, err := JSON([]byte(`{"order":9007199254740993,"price":1234567.5,"huge":1e300,"list":[1,{"a":null}]}`))
	if err != nil {
		t.Fatal(err)
	}
	vars["message"] = big
	for text, want := range map[string]string{
		"string(message.order)": "9007199254740993", "message.order + 1": "9007199254740994", "string(message.price)": "1234567.5", "message.huge": "1e+300",
		`headers["nosuch"] ?? "main"`: "main", `headers["b"] ?? "main"`: "", `"x" + headers["nosuch"]`: "x", `(true ? headers : message)["a"]`: "x",
		"toJSON(message.list)": `[1,{"a":null}]`, "{a: [key, id]}": `{"a":["k1",12]}`, "string(nil)": "nil", `fromJSON("[1]")[0]`: "1",
		`fromBase64("YQ==") + toBase64("a")`: "aYQ==", `replace(upper("abc"), "B", "-")`: "A-C", `join(split("a,b", ","), "+")`: "a+b", "1.0": "1", "[1 == 1.0, -0.5]": "[true,-0.5]",
	} {
		v, err := run(text, vars)
		if err != nil || String(v) != want {
			t.Errorf("%s: %s, %v, not %s", text, String(v), err, want)
		}
	}
}

// TestRefused: what is wrong is one line that says what.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "ends too early", "1 +": "ends too early", "nosuch": "unknown name nosuch: there are headers, id, key, message", "nosuch()": "unknown function nosuch",
		"key + 1": "+ of text and int", "1 2": `"2" at byte 2`, "a\xff": "not valid UTF-8", "'a": "has no end", `"\x"`: "escape", `"\xff"`: "escape", "#": "not of the language",
		"key ? 1 : 2": "a condition is text", "not id": "not of int", "-key": "- of text", "len()": "has 1 arguments", "upper(id)": "argument 1 of upper is int", "id.x": "int has no elements",
		`key matches "("`: "missing closing", "1 ?? 2 + 3": "parentheses", "99999999999999999999": "not a number", "key not + 1": `"+"`, "{1+1: 2}": `"+"`, "headers.a.b": "text has no elements",
		strings.Repeat("(", 300) + "1" + strings.Repeat(")", 300): "more than 200 deep", strings.Repeat("1+", maxText): "bytes, more than",
	} {
		if _, err := Compile(text, names); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: %v, not %q", text, err, want)
		}
	}
	vars := values(t)
	for text, want := range map[string]string{
		"message.z.x": "nil has no element", "message.l[9]": "a list of 5 has no element 9", "message.n + message.s": "+ of int and text", "message.n % 0": "% of zero",
		"message.s ? 1 : 2": "a condition is text", "int(message.s)": "int of", "join(message.l)": "join of a list with int", "fromJSON(key)": "not JSON", "len(id)": "len of int",
		"upper(message.n)": "argument 1 of upper is int", "headers[message.n]": "name of a header is a text", "message.s matches message.n": "matches int",
	} {
		p, err := Compile(text, names)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if v, err := p.Run(vars); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %v, not %q", text, v, err, want)
		}
	}
}

// TestAnyText: no text makes it panic.
func TestAnyText(t *testing.T) {
	vars := values(t)
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(append(append(strings.Fields(`( ) [ ] { } , : ? . ?. not " ' \ 1. e9 1e in len( string( split(`), pieces...), operators...))).Draw(rt, "tokens"), " ")
		_, _ = run(text, vars)
	})
}
