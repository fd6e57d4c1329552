package event

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestValidJSON compares with encoding/json on text that is nearly an object of
// strings.
func TestValidJSON(t *testing.T) {
	pieces := []string{"{", "}", "[", "]", ",", ":", `"`, `"a"`, `"b c"`, `"\"`, `"\n\\\""`, `"\u00e9"`, `"\x"`, "\"\x00\"", "\"\t\"", "\"é\xff\"",
		"1", "10", "01", "-1", "1.5", "1e3", "nul", "true", "null", " ", "\t\r\n", "\f", strings.Repeat("x", 9), `"` + strings.Repeat("long ", 5) + `"`, `"a":"b"`, `,"c":"d"`, `{"a":"b"}`, `\`}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(pieces)).Draw(t, "pieces"), "")
		if rapid.Bool().Draw(t, "object") {
			text = "{" + text + "}"
		}
		if got, want := validJSON([]byte(text)), json.Valid([]byte(text)); got != want {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	})
}

// TestDecodeString compares with encoding/json.
func TestDecodeString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := `"` + strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"a", "é", `\n`, `\\`, `\"`, `\/`, `\b\f\r\t`, `\u0041`, `\ud83d\ude00`, " "})).Draw(t, "pieces"), "") + `"`
		var want string
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		if got, err := decodeString([]byte(raw)); err != nil || got != want {
			t.Fatalf("%s: %q, %v; want %q", raw, got, err, want)
		}
	})
}

func FuzzValidJSON(f *testing.F) {
	f.Add([]byte(`{"source":"s","type":"t","content":"c \" \\ \n"}`))
	f.Add([]byte(` { } `))
	f.Add([]byte(`{"a":"b",}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := validJSON(b), json.Valid(b); got != want {
			t.Errorf("%q: %v, want %v", b, got, want)
		}
	})
}
