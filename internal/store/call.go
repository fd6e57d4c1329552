package store

import (
	"runtime"
	"strings"
)

// CallerPanic carries a panic of a function that a user of the library gave us through
// what turns panics into [ErrCorrupt].
type CallerPanic struct{ Value any }

// Call runs a function that a user of the library gave us. A panic that begins in it
// goes on as a CallerPanic.
func Call(fn func() error) error {
	done := false
	defer func() {
		if done {
			return
		}
		inDatabase := panicIsInDatabase()
		r := recover()
		if r == nil {
			return // runtime.Goexit, which goes on
		}
		// A fault at an address is one in the mapped file, whoever reads it.
		if _, fault := r.(interface{ Addr() uintptr }); fault || inDatabase {
			panic(r)
		}
		panic(CallerPanic{r})
	}()
	err := fn()
	done = true
	return err
}

// ours are the packages whose code can meet a damaged page.
var ours = []string{"go.etcd.io/bbolt", "thread/index", "thread/internal/store"}

// panicIsInDatabase reports whether the present panic began in bbolt, in the index, in a
// store or in a method of package engine, on a damaged page, and not in the code of a
// caller. It is the answer for a fault too where a system keeps its address from us, as
// qemu's user mode does.
func panicIsInDatabase() bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for panicking := false; ; {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "runtime.") {
			panicking = true
		} else if panicking && !strings.HasPrefix(f.Function, "encoding/binary.") {
			if strings.HasPrefix(f.Function, "thread/engine.(") {
				return true
			}
			for _, pkg := range ours {
				if rest, ok := strings.CutPrefix(f.Function, pkg); ok && rest != "" && (rest[0] == '.' || rest[0] == '/') {
					return true
				}
			}
			return false
		}
		if !more {
			return false
		}
	}
}
