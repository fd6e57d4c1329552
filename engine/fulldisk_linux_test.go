package engine

import (
	"flag"
	"os/signal"
	"syscall"
	"testing"
)

// onFullDisk calls fn while this process can write nothing behind the first page of any file, as
// on a disk that is full.
func onFullDisk(t *testing.T, fn func()) {
	t.Helper()
	// The limit is for all that the process writes. Where go test may take the outcome from
	// its cache another time, it has a log written of all that is opened here.
	if f := flag.Lookup("test.testlogfile"); f != nil && f.Value.String() != "" {
		t.Log("the disk is not full once: that takes -count 1 or -shuffle on")
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // an error is enough
	defer signal.Reset(syscall.SIGXFSZ)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	now := was
	now.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &now); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	fn()
}
