package event

import (
	"strings"
	"testing"
)

// BenchmarkJSON writes and reads one line of an event of some 300 bytes, with and
// without something to escape.
func BenchmarkJSON(b *testing.B) {
	for _, c := range []struct{ name, content string }{
		{"plain", strings.Repeat("please look at the report until tomorrow; ", 7)},
		{"escaped", strings.Repeat(`{"say":"so"}`+"\n", 23)},
		{"umlauts", strings.Repeat("bitte schön, über Österreich; ", 9)},
	} {
		e := Event{ID: 7, CreatedAt: "2026-03-18T10:30:00.123Z", Source: "external:telegram:tg-main:dm:alice:alice", Type: "message", Content: c.content}
		line := e.AppendJSON(nil)
		b.Run("append/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				e.AppendJSON(line[:0])
			}
		})
		line = e.AppendJSON(nil)
		b.Run("parse/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if _, err := ParseDraft(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTime(b *testing.B) {
	const text = "2026-03-18T10:30:00.123Z"
	ms, _ := ParseTime(text)
	b.Run("append", func(b *testing.B) {
		var buf [len(TimeLayout)]byte
		for b.Loop() {
			AppendTime(buf[:0], ms)
		}
	})
	b.Run("parse", func(b *testing.B) {
		for b.Loop() {
			if _, exact := ParseTime(text); !exact {
				b.Fatal("not exact")
			}
		}
	})
}
