package filter

import (
	"os"
	"strings"
	"testing"
)

// TestDocs compiles every line of the examples in docs/reference/filter.md and compares it
// with SQLite; those marked as refused must be.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/filter.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := nastyRows()
	for i := range rows {
		rows[i].ID = int64(i + 1)
	}
	for i, source := range []string{"external:telegram:tg-main:dm:alice:alice", "external:telegram:tg-main:group:grp-123:bob",
		"external:telegram:tg-main:group:grp-123/topic-456:alice", "internal:dm:health-check-0320:maintainer"} {
		rows = append(rows, Row{ID: int64(len(rows) + 1), CreatedAt: "2026-03-18T10:30:00.123Z", Source: source, Type: "message", Content: strings.Repeat("x", i)})
	}
	o := newOracle(t, rows)
	count := 0
	block := ""
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
			block = name
			continue
		}
		switch block {
		case "sql":
			count++
			line = strings.TrimSuffix(line, "\n") // as it is copied
			if !checkFilter(t, o, line) {
				_, err := Compile(line)
				t.Errorf("the example %q is not a filter: %v", line, err)
			}
		case "refused":
			count++
			if _, err := Compile(line); err == nil {
				t.Errorf("%q is said to be refused and is not", line)
			}
		}
	}
	if count < 25 {
		t.Errorf("only %d examples found", count)
	}
	e := func() error { _, err := Compile("type=message AND source = 'self'"); return err }().(*Error)
	if shown := e.Excerpt() + e.Error() + "\n"; !strings.Contains(string(text), shown) {
		t.Errorf("the page does not show the error as it is:\n%s", shown)
	}
}
