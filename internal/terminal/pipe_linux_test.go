package terminal

import (
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A pipe that much is written to holds more than one write; one that gets little stays as it is.
func TestWidenPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	size := func() int {
		n, err := unix.FcntlInt(r.Fd(), unix.F_GETPIPE_SZ, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := size()
	if _, err := unix.FcntlInt(r.Fd(), unix.F_SETPIPE_SZ, pipeBytes); err != nil {
		t.Skip("this account may not have larger pipes:", err)
	}
	if _, err := unix.FcntlInt(r.Fd(), unix.F_SETPIPE_SZ, before); err != nil {
		t.Fatal(err)
	}
	o := Output{W: w}
	if err := o.Text("a line\n"); err != nil || o.Flush() != nil || size() != before {
		t.Fatalf("%d bytes, %v", size(), err)
	}
	read := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, r)
		read <- n
	}()
	for range 300 {
		if err := o.Text(strings.Repeat("x", 1023) + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Flush(); err != nil {
		t.Fatal(err)
	}
	if size() < before || size() < pipeBytes && before < pipeBytes {
		t.Errorf("%d bytes, it had %d", size(), before)
	}
	w.Close()
	if n := <-read; n != 300<<10+7 {
		t.Errorf("%d bytes were read", n)
	}
}
