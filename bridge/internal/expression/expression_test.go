//go:build !edge

package expression

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// env is what an expression sees here.
type env struct {
	Headers map[string]any `expr:"headers"`
	Message any            `expr:"message"`
	Key     string         `expr:"key"`
	Source  string         `expr:"source"`
	ID      int64          `expr:"id"`
}

const message = `{"n":7,"f":1.5,"s":"abc","t":true,"z":null,"l":[1,"b",2.5,null,[0]],"m":{"k":"v","n":-3,"d":{"e":"deep"}},"order":9007199254740993,"price":1234567.5,"huge":1e300}`

func values(t interface{ Fatal(...any) }) env {
	m, err := JSON([]byte(message))
	if err != nil {
		t.Fatal(err)
	}
	return env{map[string]any{"a": "x", "b": "", "x-shop": "s1"}, m, "k1", "src", 12}
}

func run(text string, e env) (any, error) {
	p, err := Compile(text, env{})
	if err != nil {
		return nil, err
	}
	return p.Run(e)
}

// TestMigration: the expressions of the documents and of the language that was here before
// give what they gave.
func TestMigration(t *testing.T) {
	for text, want := range map[string]string{
		// docs/reference/bridge.md
		`"shop:" + (headers["x-shop"] ?? "main")`: "shop:s1", `"shop:" + (headers["nosuch"] ?? "main")`: "shop:main", `message.kind ?? "order"`: "order", `message.s ?? "order"`: "abc",
		`"shop:" + headers["x-shop"]`: "shop:s1", `"shop:" + headers["nosuch"]`: "shop:", "source": "src", "message.order": "9007199254740993", "string(message.order)": "9007199254740993",
		"{id: message.order}": `{"id":9007199254740993}`,
		// of the tests before
		"message.order + 1": "9007199254740994", "string(message.price)": "1234567.5", "message.huge": "1e+300", `headers["b"] ?? "main"`: "", `"x" + headers.nosuch`: "x",
		"toJSON(message.l)": `[1,"b",2.5,null,[0]]`, "{a: [key, id]}": `{"a":["k1",12]}`, "string(nil)": "nil", `fromJSON("[1]")[0]`: "1", `fromJSON("9007199254740993")`: "9007199254740993",
		`fromBase64("YQ==") + toBase64("a")`: "aYQ==", `replace(upper("abc"), "B", "-")`: "A-C", `join(split("a,b", ","), "+")`: "a+b", `join(split("ab", ""))`: "ab", "1.0": "1", "[1 == 1.0, -0.5]": "[true,-0.5]",
		"message.m.d.e": "deep", "message?.z?.x.y": "nil", "message.l[-1][0]": "0", `message["s"]`: "abc", `key in ["k1", "k2"]`: "true", `key startsWith "k" and not (key endsWith "k")`: "true",
		`key matches "^k[0-9]$" ? "yes" : "no"`: "yes", "2 ** 3 + 7 % 4": "11", `message.nosuch == nil`: "true", `len(message.l) + len(key)`: "7", `trim(" a ") + trimPrefix("ab", "a") + lower("Q")`: "abq",
		`int("12") + float("1.5")`: "13.5", `"a" in headers`: "true", `hasPrefix(key, "k")`: "true", "7 / 2": "3.5", `headers["nosuch"] == nil`: "true", `headers["a"] != nil`: "true",
		`len(headers["nosuch"])`: "0", `(headers["nosuch"] ?? message.nosuch) ?? key`: "k1", `"abc" contains "b"`: "true",
	} {
		v, err := run(text, values(t))
		if err != nil || String(v) != want {
			t.Errorf("%s: %s, %v, not %s", text, String(v), err, want)
		}
	}
}

// TestRefused: an error is one line with its place. Nothing loops, and nothing that grows
// by doubling is taken.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "unexpected token", "1 +": "(column", "nosuch": "unknown name nosuch (column 1)", "key +\n nosuch": "unknown name nosuch (line 2, column 2)", "key - 1": "(column", "nosuch()": "(column 1)",
		"all([1], true)": "all is not available here (character 1)", "key in map(message.l, # + 1)": "map is not", "reduce(message.l, #acc + #)": "reduce is not", `repeat(key, 1000000)`: "repeat", "now()": "now", "sum([1])": "sum is not",
		"let a = key + key; a": "let is not available here (character 5)", "1; let a = key; a": "let is not", strings.Repeat("1+", maxNodes) + "1": "node", strings.Repeat(" ", maxText) + "1": "bytes, more than",
		strings.Repeat("(", maxText/2) + "1" + strings.Repeat(")", maxText/2): "bytes, more than",
	} {
		if _, err := Compile(text, env{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: %v, not %q", text, err, want)
		}
	}
	e := values(t)
	for text, want := range map[string]string{
		"message.z.x": "(column", "message.l[9]": "index out of range", "message.n + message.s": "(column", "join(message.l)": "join of a list with int", `fromJSON(key)`: "(column",
		"upper(message.n)": "(column", `"a" + message.nosuch`: "(column", "1..10000000": "memory budget", `message.s ? 1 : 2`: "(column",
	} {
		p, err := Compile(text, env{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if v, err := p.Run(e); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v %v, not %q", text, v, err, want)
		}
	}
	e.Key = strings.Repeat("a", 100_000)
	for _, text := range []string{`replace(key, "", key)`, `replace(key, "a", key)`, `join(split(key, ""), key)`, `split(replace(key, "a", "aaaaaaaaaaaaaaaaaaaaaaaaa"), "")`} {
		if _, err := run(text, e); err == nil || !strings.Contains(err.Error(), "of more than") && !strings.Contains(err.Error(), "a list of") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestAnyText: no text makes it panic, and an error is one line.
func TestAnyText(t *testing.T) {
	e := values(t)
	piece := rapid.SampledFrom(append(strings.Fields(`( ) [ ] { } , : ? . ?. not " ' \ 1. e9 1e in len( string( split( 1 2 0 1.5 "abc" true nil key id message headers message.l ["a"] .x [0] [-1] + - * / % **
		== != < and or ?? contains matches let = ; if else | # .. .n {1} 'b' join( replace( toJSON(`), "\n", "\xff", "ü"))
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOf(piece).Draw(rt, "tokens"), " ")
		if _, err := run(text, e); err != nil && strings.Contains(err.Error(), "\n") {
			rt.Errorf("%q: %v", text, err)
		}
	})
}
