package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestJSONExamples: a document shows what each verb prints with --json, and explains its
// keys. TestPages compares the shape of what comes out with what the document shows.
func TestJSONExamples(t *testing.T) {
	shown := ""
	for _, names := range [][]string{{"json.md"}, {"history.md", "json-history.md"}} {
		doc := ""
		for _, name := range names {
			file, err := os.ReadFile("../../docs/reference/" + name)
			if err != nil {
				t.Fatal(err)
			}
			doc += string(file)
		}
		for _, b := range blocks(doc) {
			if b.mark == "sh" {
				shown += b.text
			}
			for _, key := range regexp.MustCompile(`"(\w+)": ?`).FindAllStringSubmatch(b.text, -1) {
				if b.mark == "json" && !strings.Contains(doc, "`"+key[1]+"`") {
					t.Errorf("%s: `%s` is not explained", names, key[1])
				}
			}
		}
	}
	for _, v := range allVerbs() {
		for _, f := range v.Model().Flags {
			if f.Name == "json" && !regexp.MustCompile(`thread `+v.Name+` .*--json`).MatchString(shown) {
				t.Errorf("no document has an example of thread %s --json", v.Name)
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
