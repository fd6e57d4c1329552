package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"thread/internal/cli"
	"thread/internal/verb/core"
	"unicode/utf8"
)

// FuzzBatch: of any input, each draft that is taken is what encoding/json reads in
// its line, and the first line that is none ends it with an error that names it.
func FuzzBatch(f *testing.F) {
	for _, s := range []string{
		`{"source":"s","type":"t","content":"c"}` + "\n", "\uFEFF" + `{"source":"s","type":"t","subtype":null,"content":""}` + "\r\n\n",
		`{"source":"\ud83d\ude00","type":"\u0000","content":"c","dedupe_key":"k","id":1,"more":[{}]}`, "{}", "null\n", "[", "\xff", `{"source":1}`,
		`{"source":"s","type":"t","content":"c"}{"source":"s"}`, `{"source":"s","source":"x","type":"t","content":"\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		input := strings.Split(strings.TrimPrefix(string(data), "\uFEFF"), "\n")
		at := 0 // of the next line that is not blank
		for d, err := range core.BatchDrafts(bytes.NewReader(data), 1<<20, new(int)) {
			for at < len(input) && strings.TrimSpace(input[at]) == "" {
				at++
			}
			var bad *cli.LineError
			if errors.As(err, &bad) {
				if bad.Line != at+1 {
					t.Fatalf("line %d is called line %d: %v", at+1, bad.Line, err)
				}
				return
			}
			if err != nil || at >= len(input) {
				t.Fatalf("draft %+v, %v behind the last line", d, err)
			}
			var want struct {
				Source, Type, Content json.RawMessage
			}
			if err := json.Unmarshal([]byte(input[at]), &want); err != nil {
				t.Fatalf("%q was taken: %v", input[at], err)
			}
			if !utf8.ValidString(d.Source + d.Type + d.Content) {
				t.Fatalf("%q has text that is not UTF-8", input[at])
			}
			if !strings.Contains(strings.ToLower(input[at]), "source") || d.Validate() == nil && exact(input[at]) &&
				(d.Source != stored(want.Source) || d.Type != stored(want.Type) || d.Content != stored(want.Content)) {
				t.Fatalf("%q became %+v", input[at], d)
			}
			at++
		}
	})
}

// stored returns the content that a value becomes: a string itself, and anything
// else its compact JSON (T-33).
func stored(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var b bytes.Buffer
	_ = json.Compact(&b, value) // encoding/json has read it
	return b.String()
}

// exact reports whether encoding/json, which does not look at the case of keys,
// would find each key that counts once.
func exact(line string) bool {
	line = strings.ToLower(line)
	for _, key := range []string{"source", "type", "content"} {
		if strings.Count(line, key) != 1 || strings.Count(line, `"`+key+`"`) != 1 {
			return false
		}
	}
	return utf8.ValidString(line) && !strings.Contains(line, `\u`) && strings.Count(line, "type") == 1
}

// harmless are the verbs that start no program and write nowhere but in the
// directory that they are given.
var harmless = []string{"init", "push", "pop", "ack", "seek", "peek", "subscribe", "unsubscribe", "pause", "resume", "dead", "info", "why", "filter",
	"check", "compact", "prune", "help", "completion", "--help", "--version", ""}

// FuzzArgs: no command line makes the program panic. It ends with 0, 1 or 2, and
// unless it is 0 with an error on stderr.
func FuzzArgs(f *testing.F) {
	f.Setenv("THREAD_DISPATCH", "none")
	f.Setenv("THREAD_DIR", "inbox")
	f.Setenv("HOME", f.TempDir())
	f.Chdir(f.TempDir())
	if code := whole.Run([]string{"init", "inbox"}, nil, &bytes.Buffer{}, &bytes.Buffer{}); code != 0 {
		f.Fatal(code)
	}
	for _, s := range []string{
		"push\n--source\ns\n--type\nt\n--content\nc", "push\n--batch\n--json", "push\n--source=s\n--type=\n--content-file\nx", "peek\n--last-event-id\n-1",
		"pop\n--consumer\nc\n--last-event-id\n9223372036854775808", "subscribe\n--consumer\n\xff\n--handler\nx\n--filter\ntype = 'a", "ack\n--event-id",
		"info\n--json\n--json", "dead\nretry\n--filter\nid > 1", "why\n1", "prune\n--keep-last\n1\n--force", "filter\ntest\nid >", "help\npush", "--help", "", "\n",
		"seek\n--consumer\nc\n--to\n2026-03-18", "check\n--", "init\na\nb", "completion\nbash", "peek\n--limit\n1e9\n--reverse",
	} {
		f.Add(s, `{"source":"s","type":"t","content":"c"}`)
	}
	f.Fuzz(func(t *testing.T, text, stdin string) {
		args := strings.Split(text, "\n")
		if !slices.Contains(harmless, args[0]) || strings.ContainsAny(text, "/\\~\x00") || strings.Contains(text, "..") {
			t.Skip() // it could write elsewhere
		}
		if strings.Contains(text, "-f") || strings.Contains(text, "rate") {
			t.Skip() // it could continue for ever
		}
		var stdout, stderr bytes.Buffer
		code := whole.Run(args, strings.NewReader(stdin), &stdout, &stderr)
		switch {
		case code < 0 || code > 2:
			t.Fatalf("%q: exit code %d", args, code)
		case code != 0 && !strings.Contains("\n"+stderr.String(), "\nError: ") && !strings.HasPrefix(stderr.String(), "Invalid command: ") && !strings.Contains(stderr.String(), `{"error":`):
			t.Fatalf("%q: exit code %d, and on stderr %q", args, code, stderr.String())
		}
	})
}
