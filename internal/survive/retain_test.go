package survive

import (
	"fmt"
	"testing"
	"time"

	"thread/engine"
	"thread/jsonlog"
)

// retainOperation stores limits, which content does not know, and drops events in a
// second transaction.
func retainOperation(name string, from func(t *testing.T, dir string), most string) operation {
	op := operation{name: name, from: from, args: []string{"retain", "--thread", "D", "--max-events", most}, reads: true, again: true, drops: true}
	op.same = name == "retain that is held back"
	return op
}

func rare(op operation) operation {
	op.rare = true
	return op
}

// spentLines is a thread with a rotated file of lines, of which no event is waited for.
func spentLines(t *testing.T, dir string) {
	holding(10050)(t, dir)
	thread(t, batch(3, "newest"), "push", "--thread", dir, "--batch")
	for _, c := range []string{"c", "d"} {
		thread(t, "", "ack", "--thread", dir, "--consumer", c, "--event-id", "10040")
	}
}

// limited keeps by itself 1000 of its events, of which consumers wait for none.
func limited(t *testing.T, dir string) {
	fresh(t, dir)
	for _, c := range []string{"c", "d"} {
		thread(t, "", "unsubscribe", "--thread", dir, "--consumer", c)
	}
	thread(t, "", "retain", "--thread", dir, "--max-events", "1000")
	thread(t, batch(997, "more"), "push", "--thread", dir, "--batch")
}

// unlimitedPush stores a batch, and nothing is dropped.
func unlimitedPush(t *testing.T, dir, stdin string) {
	thread(t, "", "retain", "--thread", dir, "--off")
	thread(t, stdin, "push", "--thread", dir, "--batch")
}

// retainLater keeps the limits, as a push does after the pause that follows a try.
func retainLater(t *testing.T, dir string) {
	th, err := engine.Open(dir, engine.WithClock(func() time.Time { return time.Now().Add(time.Hour) }))
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	if _, err := th.Retain(ctx); err != nil {
		t.Fatal(err)
	}
}

// leftLines returns the lines that are to be there still: whole files of the
// oldest may be gone, none with an event that is stored.
func leftLines(t *testing.T, dir string, lines [][]byte, c content) ([][]byte, error) {
	t.Helper()
	var first int64
	if left := lineFiles(t, dir); len(left) > 0 {
		first, _ = jsonlog.LineID(left[0])
	}
	for i, line := range lines {
		switch id, _ := jsonlog.LineID(line); {
		case id == first:
			return lines[i:], nil
		case len(c.ids) > 0 && id >= c.ids[0]:
			return nil, fmt.Errorf("the line of event %d is gone, and event %d is there", id, c.ids[0])
		}
	}
	return lines, nil
}
