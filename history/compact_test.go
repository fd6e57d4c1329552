package history

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/engine"
)

// drawn fills every field of a row with what is hard to keep.
func drawn(t *rapid.T, r Row) {
	text := rapid.SampledFrom([]string{"", "a", "ä\x00\"\\\n", "\xff\xfe", "null", strings.Repeat("x", 127), strings.Repeat("y", 128), strings.Repeat("z", 700), strings.Repeat("w", 3000)})
	value := rapid.SampledFrom([]string{"", "null", " null", `"x"`, " \"x\"", "[1]\n", "{\"a\":1e400, \"row\":{}}", `"` + strings.Repeat("v", 900) + `"`, `"ÿ  "`})
	at := rapid.SampledFrom([]time.Time{{}, time.Unix(0, 0), time.UnixMilli(-1), time.UnixMilli(1), time.Unix(1e9, 999_999_999), time.Date(1, 1, 1, 0, 0, 0, 1e6, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("z", 3600))})
	number := rapid.SampledFrom([]int64{0, 1, -1, 63, 64, 1 << 62, -1 << 63, 1<<63 - 1})
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i).Addr().Interface().(type) {
		case *string:
			*f = text.Draw(t, "text")
		case *json.RawMessage:
			if *f = nil; rapid.Bool().Draw(t, "is there") {
				*f = raw(value.Draw(t, "value"))
			}
		case *time.Time:
			*f = at.Draw(t, "at")
		case *int64:
			*f = number.Draw(t, "number")
		case *bool:
			*f = rapid.Bool().Draw(t, "flag")
		default:
			t.Fatalf("a column of %T", f)
		}
	}
}

// TestCompact: a row in the table is the row that stands in the log, and what was cut or
// changed is refused or read, and never out of bounds.
func TestCompact(t *testing.T) {
	var entities []Entity
	for e := range entityTags {
		entities = append(entities, e)
	}
	rapid.Check(t, func(t *rapid.T) {
		row := NewRow(rapid.SampledFrom(entities).Draw(t, "entity"))
		drawn(t, row)
		text, err := appendRow(nil, row, false)
		if err != nil {
			return // it cannot be stored
		}
		logged, got := NewRow(row.Entity()), NewRow(row.Entity())
		wrong := ParseJSON(logged, text)
		short, err := inline(row.Entity(), text)
		if len(text) > maxInline {
			if short != nil || err != nil {
				t.Fatalf("%d bytes stand in the table, %v", len(text), err)
			}
			short = appendCompact(nil, logged)
		} else if (err != nil) != (wrong != nil) {
			t.Fatalf("%s: %v, in the table %v", text, wrong, err)
		}
		if wrong != nil {
			return
		}
		example(got)
		if err := parseCompact(got, string(short)); err != nil || !reflect.DeepEqual(got, logged) {
			t.Fatalf("%s\ncame back as %+v, %v", text, got, err)
		}
		v := version{latest: rapid.Int64Min(1).Draw(t, "latest"), first: rapid.Int64Min(1).Draw(t, "first"), session: rapid.SampledFrom([]string{"", "S", strings.Repeat("s", 300)}).Draw(t, "session"), row: short}
		record := v.encode()
		if again, ok := decodeVersion(record); !ok || !reflect.DeepEqual(again, v) || string(inlineRow(record)) != string(short) {
			t.Fatalf("%+v came back as %+v, %v", v, again, ok)
		}
		for range 20 {
			cut := record[:rapid.IntRange(0, len(record)).Draw(t, "cut")]
			if again, ok := decodeVersion(cut); ok && again.row != nil {
				_ = parseCompact(got, string(again.row))
			}
			_ = parseCompact(got, string(inlineRow(cut)))
		}
		damaged := []byte(string(short))
		if len(damaged) > 0 {
			damaged[rapid.IntRange(0, len(damaged)-1).Draw(t, "at")] ^= rapid.Byte().Draw(t, "bits")
			_ = parseCompact(got, string(damaged))
		}
	})
}

// TestOldRecords: tables of an older version, in which a row stands in the log only, are
// used as they are, and rebuilding them makes tables of this version.
func TestOldRecords(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "R", SessionID: "S", TriggerType: "message"}))
	one[StepRow](t)(r.Step(ctx, StepRow{ID: "short", StepType: "x"}))
	one[StepRow](t)(r.Step(ctx, StepRow{ID: "long", StepType: "x", Input: raw(`"` + strings.Repeat("x", 2*maxInline) + `"`)}))
	one[MessageRow](t)(r.Message(ctx, MessageRow{ID: "M", Role: "user", Content: raw(`"hello"`)}))
	before, want := dump(t, h), contents(t, h)
	th := one[*engine.Thread](t)(h.Thread())
	older := 0
	ok(t, th.Update(ctx, func(e *engine.Tx) error {
		rows, err := e.Records(tableRows)
		ok(t, err)
		var keys [][]byte
		for rec := range rows.Ascend(nil, nil) {
			keys = append(keys, append([]byte(nil), rec.Key...))
		}
		for _, k := range keys {
			v, _ := decodeVersion(rows.Get(k))
			if v.row != nil {
				older++
			}
			v.row = nil
			ok(t, rows.Put(k, v.encode()))
		}
		return nil
	}))
	if older < 4 {
		t.Fatalf("%d rows stood in the table", older)
	}
	if now := contents(t, h); now != want {
		t.Errorf("older records give\n%s, want\n%s", now, want)
	}
	if got := ids(t, h.Steps(ctx, "R")); got != "short long " {
		t.Errorf("steps %s", got)
	}
	rebuilt := one[int64](t)(h.Rebuild(ctx))
	if now := dump(t, h); !reflect.DeepEqual(now, before) || rebuilt == 0 {
		t.Errorf("rebuilt from %d events:\n%v, want\n%v", rebuilt, now, before)
	}
	// A write to an older record is one of this version.
	ok(t, th.Update(ctx, func(e *engine.Tx) error {
		rows, err := e.Records(tableRows)
		ok(t, err)
		v, _ := decodeVersion(rows.Get(rowKey(RunEntity, "R")))
		v.row = nil
		return rows.Put(rowKey(RunEntity, "R"), v.encode())
	}))
	ok(t, r.Switch(ctx, "other"))
	after := dump(t, h)
	_, err := h.Rebuild(ctx)
	ok(t, err)
	if now := dump(t, h); !reflect.DeepEqual(now, after) {
		t.Errorf("rebuilt:\n%v, want\n%v", now, after)
	}
}
