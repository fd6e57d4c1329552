package fsck

import (
	"io"

	"thread/jsonlog"
)

// linesAhead checks, under the database's lock, whether events.jsonl knows an event
// that the database does not. Lines are written after the commit, so that the
// database then lost a change that was durable, as when its newer meta page rots.
func (c *checker) linesAhead() {
	f, err := openLines(c.s.Path("events.jsonl"))
	st := &c.pages.now
	if err != nil || st.Log.First == 0 {
		return // no line is not a line too many
	}
	defer f.Close()
	lines := jsonlog.NewLines(io.NewSectionReader(f, st.Log.Size, 1<<62))
	for {
		more, err := lines.Next()
		if err != nil || !more {
			return
		}
		id, ok := lines.ID()
		if whole, err := lines.Whole(); err == nil && ok && whole && id > st.Head {
			c.faultf("events.jsonl", "has event %d, but the newest in the database is %d: the database lost a change", id, st.Head)
			return
		}
	}
}
