package pipe

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// The oracle keeps everything.
func TestTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 40).Draw(t, "most")
		tail := &Tail{Most: most}
		var all []byte
		for _, part := range rapid.SliceOf(rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
			rapid.SliceOf(rapid.Byte()),
		)).Draw(t, "parts") {
			all = append(all, part...)
			if n, err := tail.Write(part); n != len(part) || err != nil {
				t.Fatalf("Write = %d, %v", n, err)
			}
		}
		text, cut := tail.Text()
		if !utf8.ValidString(text) || len(text) > most || tail.Size() != int64(len(all)) {
			t.Fatalf("%q of %d bytes, size %d of %d", text, len(text), tail.Size(), len(all))
		}
		whole := strings.ToValidUTF8(string(all), "\uFFFD")
		switch {
		case len(all) <= most && len(whole) <= most:
			if text != whole || cut {
				t.Fatalf("%q, cut %v, want %q", text, cut, whole)
			}
		case utf8.Valid(all):
			if !strings.HasSuffix(whole, text) || len(text) <= most-utf8.UTFMax || !cut {
				t.Fatalf("%q, cut %v, is not the last %d bytes of %q", text, cut, most, whole)
			}
		case !cut:
			t.Fatalf("%q is not all of %q", text, all)
		}
		if tail.Reset(); tail.Size() != 0 {
			t.Fatal("Reset left something")
		}
	})
}

// What was printed is copied when CatchUp returns, also while another process has the pipe open.
func TestCatchUp(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var to bytes.Buffer
	c := Start(reader, &to)
	want := ""
	for range 100 {
		text := strings.Repeat("x", 5000)
		if _, err := writer.WriteString(text); err != nil {
			t.Fatal(err)
		}
		want += text
		c.stop() // CatchUp, but that nothing is copied while it is looked at
		if to.String() != want || c.Ended() {
			t.Fatalf("%d bytes, want %d, ended %v", to.Len(), len(want), c.Ended())
		}
		c.start()
	}
	c.CatchUp()
	writer.WriteString("end")
	writer.Close()
	if c.Close(); to.String() != want+"end" || !c.Ended() {
		t.Fatalf("%d bytes, ended %v", to.Len(), c.Ended())
	}
}

// The pipe of a process that was left behind may never be found empty.
func TestRestEnds(t *testing.T) {
	var to countWriter
	c := &Copy{to: &to, buf: make([]byte, 32<<10)}
	if c.rest(endless{}); to != most || c.Ended() {
		t.Errorf("%d bytes, want %d; ended %v", to, most, c.Ended())
	}
}

// endless always has more to read.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// countWriter fails, which stops nothing.
type countWriter int

func (w *countWriter) Write(p []byte) (int, error) {
	*w += countWriter(len(p))
	return 0, errors.New("full")
}
