package journal

import (
	"syscall"
	"testing"
)

// TestShortWrite: when a write fails after a part, a record that is there is not called
// missing, and one that is there in part is.
func TestShortWrite(t *testing.T) {
	base := Base{1, 1}
	j := New(open(t), base)
	must(t, j.f.Truncate(0))
	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was)
	const length = headerBytes + 200
	for _, room := range []uint64{0, 1, length - 1, length, 511} {
		must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: room, Max: was.Max}))
		written, err := j.Append(make([]byte, 200))
		if err == nil || written != (room >= length) {
			t.Errorf("%d bytes fit: %t %v", room, written, err)
		}
		if number, _ := j.Position(); number != 0 {
			t.Errorf("%d bytes fit: it counts", room)
		}
	}
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	must(t, j.f.Truncate(Bytes))
	if found, err := numbers(j.f, base, true); err != nil || len(found) != 1 {
		t.Errorf("the one that is there: %v %v", found, err)
	}
	must(t, j.f.Close())
	if written, err := j.Append(nil); err == nil || !written {
		t.Errorf("a file that cannot be read either: %t %v", written, err)
	}
}
