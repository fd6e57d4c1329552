package jsonlog_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"thread/jsonlog"
)

// piece is more than Lines reads at once.
const piece = 64 << 10

var someLines = []string{
	"", "x", `"}`, `}`, `x"}`, `{"id":7,"created_at":"now","content":"x"}`, `{"id":0,"created_at":""}`, `{"id":1,"created_at":""}`, `{"id":-3,"created_at":""}`, `{"id":7,"x":""}`,
	`{"id":9223372036854775807,"created_at":"`, `{"id":9223372036854775808,"created_at":""}`, `{"id":x,"created_at":""}`,
	`{"id":7,"created_at":"` + strings.Repeat("y", piece) + `"}`, strings.Repeat("z", piece-1), strings.Repeat("z", piece), strings.Repeat("z", 3*piece+5) + `"}`,
	strings.Repeat("z", piece-1) + `"}`,
}

// lineID is the oracle of Lines.ID: 0 when it is not the line of an event.
func lineID(line string) int64 {
	id, ok := jsonlog.LineID([]byte(line[:min(len(line), 60)] + `"}`)) // the end of the line does not count
	if !ok || id <= 0 {
		return 0
	}
	return id
}

// TestLines: Lines against the text split at its newlines.
func TestLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom(someLines), 0, 6).Draw(t, "lines")
		text := strings.Join(lines, "\n")
		if rapid.Bool().Draw(t, "ended") && len(lines) > 0 {
			text += "\n"
		}
		var want []string
		for line := range strings.Lines(text) {
			want = append(want, line)
		}
		var r io.Reader = strings.NewReader(text)
		if rapid.Bool().Draw(t, "in pieces") {
			r = iotest.HalfReader(r)
		}
		l := jsonlog.NewLines(r)
		offset := int64(0)
		for i, line := range want {
			more, err := l.Next()
			if !more || err != nil || l.Number != int64(i+1) || l.Offset != offset {
				t.Fatalf("line %d at %d is number %d at %d, %v, %v", i+1, offset, l.Number, l.Offset, more, err)
			}
			offset += int64(len(line))
			lineText, ended := strings.CutSuffix(line, "\n")
			if rapid.Bool().Draw(t, "id") {
				id, ok := l.ID()
				if want := lineID(lineText); ok != (want > 0) || ok && id != want {
					t.Fatalf("line %d, %.80q: id %d, %v; want %d", i+1, line, id, ok, want)
				}
			}
			switch rapid.IntRange(0, 3).Draw(t, "read") {
			case 0:
				continue
			case 1:
				whole, err := l.Whole()
				if whole != (ended && strings.HasSuffix(lineText, `"}`)) || err != nil {
					t.Fatalf("line %d, %.80q: whole is %v, %v", i+1, line, whole, err)
				}
			case 2:
				equal, err := l.Equal(inPieces(lineText))
				if equal != ended || err != nil {
					t.Fatalf("line %d, %.80q: equal is %v, %v", i+1, line, equal, err)
				}
				if !equal {
					continue
				}
			case 3:
				other := rapid.SampledFrom([]string{lineText + "x", strings.Replace(lineText, "z", "y", 1), "x" + lineText, lineText[:len(lineText)/2]}).Draw(t, "other")
				equal, err := l.Equal(inPieces(other))
				if equal != (ended && other == lineText) || err != nil {
					t.Fatalf("line %d, %.80q: equal to %.80q is %v, %v", i+1, line, other, equal, err)
				}
				if _, err := l.Whole(); err != nil {
					t.Fatal(err)
				}
			}
			if l.Torn() == ended || l.Length() != int64(len(lineText)) {
				t.Fatalf("line %d, %.80q: %d bytes, torn is %v", i+1, line, l.Length(), l.Torn())
			}
		}
		if more, err := l.Next(); more || err != nil {
			t.Fatalf("behind the last line: %v, %v", more, err)
		}
	})
}

// inPieces writes text in two pieces.
func inPieces(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, part := range []string{text[:len(text)/3], text[len(text)/3:]} {
			n, err := io.WriteString(w, part)
			if err != nil {
				return err
			}
			if n != len(part) {
				return io.ErrShortWrite
			}
		}
		return nil
	}
}

// TestLinesErrors: an error of the file is returned, whatever is read at that place.
func TestLinesErrors(t *testing.T) {
	failure := errors.New("failure")
	line := `{"id":7,"created_at":"now","content":"` + strings.Repeat("x", 3*piece) + `"}`
	for name, use := range map[string]func(l *jsonlog.Lines) error{
		"next": func(l *jsonlog.Lines) error {
			_, err := l.Next()
			return err
		},
		"whole": func(l *jsonlog.Lines) error {
			_, err := l.Whole()
			return err
		},
		"equal": func(l *jsonlog.Lines) error {
			equal, err := l.Equal(inPieces(line))
			if equal && err != nil {
				t.Error("a line that cannot be read is equal")
			}
			return err
		},
	} {
		for _, at := range []int{0, 1, 20, 60, piece, 2*piece + 7, len(line) - 1, len(line)} {
			l := jsonlog.NewLines(io.MultiReader(strings.NewReader("first\n"+line[:at]), iotest.ErrReader(failure)))
			more, err := l.Next()
			if !more || err != nil {
				t.Fatal(more, err)
			}
			if _, err = l.Whole(); err == nil {
				_, err = l.Next()
			}
			if err == nil {
				err = use(l)
			}
			if !errors.Is(err, failure) {
				t.Errorf("%s at %d: %v", name, at, err)
			}
		}
	}
	// The error of the one who writes is not a difference.
	l := jsonlog.NewLines(strings.NewReader("first\n"))
	l.Next()
	if equal, err := l.Equal(func(io.Writer) error { return failure }); equal || !errors.Is(err, failure) {
		t.Error(equal, err)
	}
	// The head of a line that cannot be read has no id.
	l = jsonlog.NewLines(io.MultiReader(strings.NewReader(`{"id":7,"created_at":"`), iotest.ErrReader(failure)))
	if more, err := l.Next(); !more || err != nil {
		t.Fatal(more, err)
	}
	if id, ok := l.ID(); ok {
		t.Errorf("id %d", id)
	}
	// Nor has the next line's head to do with it.
	l = jsonlog.NewLines(strings.NewReader("{\"id\":\n7,\"created_at\":\"\n"))
	l.Next()
	if id, ok := l.ID(); ok {
		t.Errorf("id %d over two lines", id)
	}
}

// TestNumbersOfLines: a file that is read by its bytes has the same lines.
func TestNumbersOfLines(t *testing.T) {
	text := strings.Join(someLines, "\n")
	l := jsonlog.NewLines(bytes.NewReader([]byte(text)))
	n := 0
	for {
		more, err := l.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
		n++
	}
	if n != len(someLines) {
		t.Errorf("%d lines, want %d", n, len(someLines))
	}
}
