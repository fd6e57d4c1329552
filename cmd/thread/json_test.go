package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestJSONDocument runs the examples of docs/JSON.md, docs/HISTORY.md and what goes on in
// docs/HISTORY-JSON.md, and compares
// the shape of what comes out with what the document shows: keys and their order, kinds
// of values and the number of objects. The values themselves are examples. Commands of
// these two without a shape must succeed.
func TestJSONDocument(t *testing.T) {
	shown := runJSONExamples(t, false, "JSON.md") + runJSONExamples(t, true, "HISTORY.md", "HISTORY-JSON.md")
	for _, v := range allVerbs() {
		for _, f := range v.Model().Flags {
			if f.Name == "json" && !regexp.MustCompile(`thread `+v.Name+` .*--json`).MatchString(shown) {
				t.Errorf("no document has an example of thread %s --json", v.Name)
			}
		}
	}
}

// runJSONExamples runs the examples of documents, one behind the other, and with all also its commands
// without a shape, and returns the commands.
func runJSONExamples(t *testing.T, all bool, names ...string) (shown string) {
	doc := ""
	for _, name := range names {
		file, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		doc += string(file)
	}
	dir := t.TempDir()
	env := append(os.Environ(), "THREAD_DISPATCH=none")
	if all {
		env = append(env, "THREAD_DIR="+filepath.Join(dir, "inbox"))
	}
	for _, example := range regexp.MustCompile("(?s)```sh\n(.*?)```(?:\n\n```json\n(.*?)```)?").FindAllStringSubmatch(doc, -1) {
		script := example[1]
		if example[2] == "" && !all {
			continue
		}
		shown += script
		cmd := exec.Command("sh", "-ec", script)
		if !all {
			cmd.Args[1] = "-c"
		}
		cmd.Dir, cmd.Env = dir, env
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output() // some examples show what comes with exit code 1
		if err != nil && all {
			t.Fatalf("%s%v\n%s", script, err, &stderr)
		}
		if example[2] == "" {
			continue
		}
		want := shape(t, example[2])
		if len(out) == 0 {
			t.Fatalf("prints nothing: %s%v\n%s", script, err, &stderr)
		}
		if got := shape(t, string(out)); !sameShape(got, want) {
			t.Errorf("%sthe document shows\n%s\nand what comes out is\n%s", script, want, got)
		}
		for _, key := range regexp.MustCompile(`"(\w+)": ?`).FindAllStringSubmatch(example[2], -1) {
			if !strings.Contains(doc, "`"+key[1]+"`") {
				t.Errorf("%s: `%s` is not explained", names, key[1])
			}
		}
	}
	return shown
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
