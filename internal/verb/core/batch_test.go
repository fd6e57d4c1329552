package core

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"thread/event"
	"thread/internal/cli"
)

func TestBatchLines(t *testing.T) {
	const good = `{"source":"s","type":"t","content":"c"}`
	for _, tt := range []struct {
		name, input string
		drafts      int
		badLine     int // 0: none
	}{
		{"empty", "", 0, 0},
		{"one without end", good, 1, 0},
		{"mark alone", "\uFEFF", 0, 0},
		{"mark and line", "\uFEFF" + good + "\r\n", 1, 0},
		{"mark on the second line", good + "\n\uFEFF" + good, 1, 2},
		{"blank lines are counted", "\n\r\n \t\n" + good + "\nx", 1, 5},
		{"longer than the buffer", `{"source":"s","type":"t","content":"` + strings.Repeat("x", 3*blockBytes) + `"}` + "\n" + good, 2, 0},
		{"end of line at the end of the buffer", good + strings.Repeat(" ", blockBytes-len(good)-1) + "\n" + good, 2, 0},
	} {
		for name, r := range map[string]io.Reader{
			"whole":   strings.NewReader(tt.input),
			"bytes":   iotest.OneByteReader(strings.NewReader(tt.input)),
			"dataErr": iotest.DataErrReader(strings.NewReader(tt.input)),
		} {
			drafts, badLine := 0, 0
			for d, err := range BatchDrafts(r, maxLineBytes, nil) {
				var at *cli.LineError
				switch {
				case errors.As(err, &at):
					badLine = at.Line
				case err != nil:
					t.Errorf("%s, %s: %v", tt.name, name, err)
				case d.Source != "s":
					t.Errorf("%s, %s: source %q", tt.name, name, d.Source)
				default:
					drafts++
				}
			}
			if drafts != tt.drafts || badLine != tt.badLine {
				t.Errorf("%s, %s: %d drafts, bad line %d; want %d, %d", tt.name, name, drafts, badLine, tt.drafts, tt.badLine)
			}
		}
	}
}

func TestBatchReadError(t *testing.T) {
	var got error
	for _, err := range BatchDrafts(iotest.ErrReader(errors.New("broken cable")), maxLineBytes, nil) {
		got = err
	}
	var f *cli.Failure
	if !errors.As(got, &f) || f.Code != 1 || !strings.Contains(f.What, "broken cable") {
		t.Errorf("got %v", got)
	}
}

// endless is a line without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("x"), len(p))), nil }

func TestBatchEndlessLine(t *testing.T) {
	for _, err := range BatchDrafts(endless{}, 3*blockBytes, nil) {
		var at *cli.LineError
		if !errors.As(err, &at) || at.Line != 1 || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("got %v", err)
		}
	}
}

// TestBatchLineBound pushes the longest JSON form of an event back in.
func TestBatchLineBound(t *testing.T) {
	name := strings.Repeat("\x00", event.MaxNameBytes)
	e := event.Event{ID: 1<<63 - 1, CreatedAt: event.TimeLayout, Source: name, Type: name, Subtype: &name}
	perByte := len(event.AppendString(nil, "\x00")) - len(`""`)
	longest := len(e.AppendJSON(nil)) + perByte*event.MaxContentBytes
	if longest > maxLineBytes {
		t.Errorf("a valid event may need %d bytes, the bound is %d", longest, maxLineBytes)
	}
}
