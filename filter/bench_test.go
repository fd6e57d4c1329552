package filter

import (
	"fmt"
	"strings"
	"testing"
)

// typicalFilters are what subscriptions look like.
var typicalFilters = []struct{ name, text string }{
	{"type", "type = 'message'"},
	{"source+type", "type = 'message' AND source LIKE 'internal:%'"},
	{"not-self", "source <> 'self' AND type = 'message'"},
	{"glob", "source GLOB 'external:telegram:*'"},
	{"subtype", "type = 'record' AND (subtype = 'toolcall' OR subtype IS NULL)"},
	{"in", "subtype IN ('toolcall', 'decision', 'artifact')"},
	{"id", "id > 500 AND type = 'message'"},
	{"content-like", "content LIKE '%deadline%'"},
	{"content-instr", "instr(content, 'deadline') > 0 AND type <> 'record'"},
	{"content", "content = 'x'"},
	{"json", "json_valid(content) AND json_extract(content, '$.priority') >= 3"},
}

// benchRows are events as an agent's inbox has them.
func benchRows(n int) []Row {
	rows := make([]Row, n)
	sources := []string{"internal:dm:default:warden", "external:telegram:main:dm:u-42:u-42", "self", "internal:group:ops:x"}
	for i := range rows {
		content := fmt.Sprintf(`{"priority":%d,"text":"%s"}`, i%5, strings.Repeat("the quick brown fox jumps over the lazy dog ", 6))
		if i%2 == 0 {
			content = strings.Repeat("please look at the report until tomorrow, it is important; ", 5)
		}
		if i%50 == 0 {
			content += "the DEADLINE is near"
		}
		rows[i] = Row{ID: int64(i + 1), CreatedAt: "2026-03-18T10:30:00.123Z", Source: sources[i%len(sources)],
			Type: []string{"message", "record"}[i%2], Subtype: "toolcall", HasSubtype: i%3 == 0, Content: content}
	}
	return rows
}

func BenchmarkCompile(b *testing.B) {
	for _, c := range typicalFilters {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Compile(c.text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkScan evaluates a filter for 2,000 events of about 300 bytes: by its program, by
// walking its tree, and in SQLite's scan of a table in memory; ns/event is per event.
func BenchmarkScan(b *testing.B) {
	rows := benchRows(2000)
	o := newOracle(b, rows)
	for _, c := range typicalFilters {
		b.Run("thread/"+c.name, func(b *testing.B) {
			m := mustCompile(b, c.text).Matcher()
			b.ReportAllocs()
			for b.Loop() {
				for i := range rows {
					if _, err := m.Match(&rows[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/event")
		})
		b.Run("tree/"+c.name, func(b *testing.B) {
			m := mustCompile(b, c.text).Matcher()
			b.ReportAllocs()
			for b.Loop() {
				for i := range rows {
					m.frame.row = rows[i]
					if _, err := m.walk(m.filter.root); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/event")
		})
		b.Run("sqlite/"+c.name, func(b *testing.B) {
			q, err := o.db.Prepare("SELECT count(*) FROM events WHERE (" + c.text + ")")
			if err != nil {
				b.Fatal(err)
			}
			defer q.Close()
			for b.Loop() {
				var n int
				if err := q.QueryRow().Scan(&n); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/event")
		})
	}
}

// BenchmarkProgram is what the first event costs that has to be decided.
func BenchmarkProgram(b *testing.B) {
	r := benchRows(1)[0]
	for _, c := range typicalFilters {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f := Filter{text: c.text, root: mustCompile(b, c.text).root}
				if _, err := f.Matcher().Match(&r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSeries(b *testing.B) {
	for _, c := range typicalFilters {
		b.Run(c.name, func(b *testing.B) {
			f := mustCompile(b, c.text)
			b.ReportAllocs()
			for b.Loop() {
				f.Series("internal:dm:default:warden", "message", "toolcall", true)
			}
		})
	}
}

// BenchmarkLikeWorstCase is a pattern that makes a backtracking matcher explode,
// on 1 MB.
func BenchmarkLikeWorstCase(b *testing.B) {
	r := Row{Content: strings.Repeat("a", 1<<20)}
	for _, text := range []string{
		"content LIKE '%a%a%a%a%b'", "content LIKE '%a%a%a%a%b%'", "content GLOB '*a*a*a*a*b'",
		"content LIKE '%a_a_a_ab%'", "content LIKE '%" + strings.Repeat("a", 500) + "b%'",
		"content GLOB '*[a]*[a]*[a]*[a]*[b]'",
	} {
		b.Run(clip(text[8:]), func(b *testing.B) {
			m := mustCompile(b, text).Matcher()
			b.SetBytes(1 << 20)
			for b.Loop() {
				if ok, err := m.Match(&r); ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
