package filter

import (
	"fmt"
	"hash/fnv"
	"testing"
	"time"
)

// versionAnswers is a hash of what the filters of TestVersion answer, by Version.
// When the test fails because answers are right now that were wrong before, raise
// Version and add a line; never change a line.
var versionAnswers = map[int]uint64{
	1: 0x996e87f9325500df,
}

var versionFilters = []string{
	"1", "0", "NULL", "'1'", "'a'", "id", "content", "NOT content", "subtype IS NULL", "subtype = 's'", "subtype <> 's'",
	"id > 5", "id = '7'", "id BETWEEN '2' AND 9", "id IN (1, '2', 3.0)", "id % 2", "id / 2 = 3", "id / 0 IS NULL", "-id < -3", "id << 2 > 9", "~id & 7",
	"source LIKE 'A:%'", "source LIKE '%b%' ESCAPE 'b'", "source GLOB 'a:*'", "source GLOB '[a-c]*'", "source < 'b'", "source || type = 'a:1t'",
	"type IN ('t', 'u', NULL)", "type NOT IN ('t', NULL)", "type = 't' AND (subtype OR 1)", "subtype OR id > 6", "type IS NOT subtype",
	"CASE type WHEN 't' THEN id > 3 ELSE subtype END", "iif(id > 3, 1, NULL)", "coalesce(subtype, 'x') = 'x'", "ifnull(subtype, 1)", "nullif(type, 't')",
	"length(content) > 3", "substr(content, 2, 3) = 'b c'", "substr(content, -2) = 'ä'", "instr(content, 'b')", "upper(content) = lower(content)",
	"replace(content, 'a', '1')", "trim(content) <> content", "abs(content)", "typeof(content) = 'text'", "hex(content) LIKE '61%'",
	"unicode(content) > 100", "char(97) < content", "CAST(content AS INTEGER)", "CAST(content AS REAL) > 1.1", "content + 1 > 2", "content = 1.25", "content > 1",
	"created_at >= '2026-03-01'", "created_at LIKE '%Z'", "strftime('%H', created_at) = '10'", "date(created_at) = '2026-03-18'", "julianday(created_at) > 2461000",
	"json_valid(content)", "json_extract(CASE WHEN json_valid(content) THEN content ELSE '{}' END, '$.a') = 1",
	"max(id, 4) = 4", "min(content, 'b') = 'b'", "content COLLATE NOCASE = 'ABC'", "content = 'ABC' COLLATE NOCASE",
}

// TestVersion: what filters mean does not change without a new Version.
func TestVersion(t *testing.T) {
	contents := []string{"", "a", "ABC", "abc", "a b c", "1", "1.25", " 1.25x", "-7e2", "0x10", `{"a":1}`, `{"a":[1]}`, "aä", "日本", "\x00", "%_"}
	h := fnv.New64a()
	refused := 0
	for _, text := range versionFilters {
		f, err := Compile(text)
		if err != nil {
			t.Logf("refused: %v", err)
			refused++
			continue
		}
		m := f.MatcherAt(time.UnixMilli(1773829800123))
		fmt.Fprintf(h, "%s\n", text)
		for i, content := range contents {
			r := Row{ID: int64(i + 1), CreatedAt: []string{"2026-03-18T10:30:00.123Z", "2025-12-31T23:59:59.999Z", "long ago"}[i%3],
				Source: []string{"a:1", "A:2", "b"}[i%3], Type: []string{"t", "u"}[i%2], Content: content}
			if i%3 != 0 {
				r.Subtype, r.HasSubtype = []string{"s", "1"}[i%2], true
			}
			ok, err := m.Match(&r)
			fmt.Fprintf(h, "%v %v\n", ok, err != nil)
		}
	}
	if refused > 0 {
		t.Errorf("%d filters are refused", refused)
	}
	if got := h.Sum64(); versionAnswers[Version] != got {
		t.Errorf("filters of version %d answer with the hash %#x, not %#x: raise Version", Version, got, versionAnswers[Version])
	}
}
