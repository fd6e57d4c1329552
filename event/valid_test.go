package event

import (
	"encoding/json"
	"errors"
	"fmt"
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

// TestDecodeString compares with encoding/json, which puts U+FFFD in the place of
// half of a surrogate pair, too.
func TestDecodeString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := `"` + strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"a", "é", `\n`, `\\`, `\"`, `\/`, `\b\f\r\t`, `\u0041`,
			`\ud83d\ude00`, `\ud83d`, `\ude00`, `\uFFFD`, `\uDBFF\uDFFF`, `\ud800\u0041`, " "})).Draw(t, "pieces"), "") + `"`
		var want string
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		got, halves := decodeString([]byte(raw))
		if got != want || halves != strings.Count(want, "\uFFFD")-strings.Count(raw, `\uFFFD`) {
			t.Fatalf("%s: %q, %d halves; want %q", raw, got, halves, want)
		}
	})
}

// TestParseDraftLossy: what the lossy parser stores is what encoding/json reads,
// with a count; the strict one refuses exactly where the other one replaces.
func TestParseDraftLossy(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "é", `\n`, `\ud83d\ude00`, `\ud83d`, `\ude00`, "\xff", "\xe2\x82", "\xed\xa0\x80", "x"})
	text := rapid.Custom(func(t *rapid.T) string {
		return `"` + strings.Join(rapid.SliceOfN(piece, 1, 6).Draw(t, "pieces"), "") + `"`
	})
	rapid.Check(t, func(t *rapid.T) {
		line := fmt.Sprintf(`{"source":%s,"type":%s,"subtype":%s,"content":%s,"created_at":%s}`, text.Draw(t, "source"),
			text.Draw(t, "type"), text.Draw(t, "subtype"), rapid.OneOf(text, rapid.Just("[\"\xff\", 1]")).Draw(t, "content"), text.Draw(t, "created_at"))
		var want struct{ Source, Type, Subtype string }
		if err := json.Unmarshal([]byte(line), &want); err != nil {
			t.Fatal(err)
		}
		d, replaced, err := ParseDraftLossy([]byte(line))
		if err != nil || d.Source != want.Source || d.Type != want.Type || *d.Subtype != want.Subtype {
			t.Fatalf("%s: %+v, %v", line, d, err)
		}
		if n := strings.Count(d.Source+d.Type+*d.Subtype+d.Content, "\uFFFD"); n != replaced {
			t.Fatalf("%s: %d are replaced, and %d counted", line, n, replaced)
		}
		strict, err := ParseDraft([]byte(line))
		if replaced == 0 && (err != nil || strict.Content != d.Content) || replaced > 0 && !errors.Is(err, ErrNotText) {
			t.Fatalf("%s: strict: %+v, %v", line, strict, err)
		}
	})
}

func TestParseDraftNames(t *testing.T) {
	d, replaced, err := ParseDraftLossy([]byte(`{"source":7,"type":-1.50e3,"subtype":0,"content":"c"}`))
	if err != nil || replaced != 0 || d.Source != "7" || d.Type != "-1.50e3" || *d.Subtype != "0" {
		t.Errorf("got %+v, %v", d, err)
	}
	for _, key := range []string{`"\ud800"`, "\"\xff\"", "7"} {
		if d, _, err := ParseDraftLossy([]byte(`{"source":"s","type":"t","content":"c","dedupe_key":` + key + `}`)); !errors.Is(err, ErrInvalid) {
			t.Errorf("dedupe key %s gave %+v, %v", key, d, err)
		}
	}
	for _, source := range []string{"true", "[]", "{}", "null", `""`} {
		if d, _, err := ParseDraftLossy([]byte(`{"source":` + source + `,"type":"t","content":"c"}`)); !errors.Is(err, ErrInvalid) {
			t.Errorf("source %s gave %+v, %v", source, d, err)
		}
	}
}

func TestToValidUTF8(t *testing.T) {
	subtype := "u\xff"
	d := Draft{Source: "a\xff\xfe", Type: "\uFFFDt", Subtype: &subtype, Content: "ok\xe2\x82", DedupeKey: "k\xff"}
	if n := d.ToValidUTF8(); n != 5 || d.Source != "a\uFFFD\uFFFD" || d.Type != "\uFFFDt" || *d.Subtype != "u\uFFFD" || d.Content != "ok\uFFFD\uFFFD" {
		t.Errorf("%d replaced: %+v", n, d)
	}
	if subtype != "u\xff" {
		t.Error("the caller's subtype was changed")
	}
	if err := d.Validate(); !errors.Is(err, ErrNotText) || !errors.Is(err, ErrInvalid) {
		t.Errorf("the key passed: %v", err)
	}
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
