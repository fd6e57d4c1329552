package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestJSONDocument runs the examples of docs/JSON.md and compares the shape of
// what comes out with what the document shows: keys and their order, kinds of
// values and the number of objects. The values themselves are examples.
func TestJSONDocument(t *testing.T) {
	file, err := os.ReadFile("../../docs/JSON.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(file)
	examples := regexp.MustCompile("(?s)```sh\n(.*?)```\n\n```json\n(.*?)```").FindAllStringSubmatch(doc, -1)
	dir := t.TempDir()
	shown := ""
	for _, example := range examples {
		script, want := example[1], shape(t, example[2])
		shown += script
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output() // some examples show what comes with exit code 1
		if len(out) == 0 {
			t.Fatalf("prints nothing: %s%v\n%s", script, err, &stderr)
		}
		if got := shape(t, string(out)); !sameShape(got, want) {
			t.Errorf("%sthe document shows\n%s\nand what comes out is\n%s", script, want, got)
		}
		for _, key := range regexp.MustCompile(`"(\w+)": ?`).FindAllStringSubmatch(example[2], -1) {
			if !strings.Contains(doc, "`"+key[1]+"`") {
				t.Errorf("the document does not explain `%s`", key[1])
			}
		}
	}
	for _, v := range allVerbs() {
		for _, f := range v.Model().Flags {
			if f.Name == "json" && !regexp.MustCompile(`thread `+v.Name+` .*--json`).MatchString(shown) {
				t.Errorf("the document has no example of thread %s --json", v.Name)
			}
		}
	}
}

// shape returns one line for each key, bracket and value of a JSON text: a value
// stands as its kind.
func shape(t *testing.T, text string) []string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	var lines []string
	token := func() json.Token {
		token, err := dec.Token()
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		return token
	}
	var value func()
	value = func() {
		switch v := token().(type) {
		case json.Delim:
			lines = append(lines, v.String())
			for dec.More() {
				if v == '{' {
					lines = append(lines, fmt.Sprintf("%q:", token()))
				}
				value()
			}
			lines = append(lines, token().(json.Delim).String())
		case nil:
			lines = append(lines, "null")
		default:
			lines = append(lines, fmt.Sprintf("%T", v))
		}
	}
	for dec.More() {
		value()
	}
	return lines
}

// sameShape allows null where there may be a value at another time.
func sameShape(a, b []string) bool {
	scalar := func(s string) bool { return s == "null" || s == "string" || s == "float64" || s == "bool" }
	return slices.EqualFunc(a, b, func(a, b string) bool {
		return a == b || scalar(a) && scalar(b) && (a == "null" || b == "null")
	})
}

func TestSameShape(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":"x"}`, `{"a":2,"b":null}`, true},
		{`{"a":1}` + "\n" + `{"a":1}`, `{"a":1}`, false},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, false},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":[]}`, `{"a":null}`, false},
		{`{"a":[{"b":true}]}`, `{"a":[{"c":true}]}`, false},
	} {
		if got := sameShape(shape(t, tt.a), shape(t, tt.b)); got != tt.same {
			t.Errorf("%s and %s: same shape %v", tt.a, tt.b, got)
		}
	}
}
