package store

import (
	"reflect"
	"runtime"
	"strings"
)

// CallerPanic carries a panic of a function that a user of the library gave us through
// what turns panics into [ErrCorrupt].
type CallerPanic struct{ Value any }

// Call runs a function that a user of the library gave us. A panic that begins in it
// continues as a CallerPanic.
func Call(fn func() error) error {
	done := false
	defer func() {
		if done {
			return
		}
		inDatabase := panicIsInDatabase()
		r := recover()
		if r == nil {
			return // runtime.Goexit, which continues
		}
		// A fault at an address is one in the mapped file, the process that reads it.
		if _, fault := r.(interface{ Addr() uintptr }); fault || inDatabase {
			panic(r)
		}
		panic(CallerPanic{r})
	}()
	err := fn()
	done = true
	return err
}

// module is the path of this module, whatever it is called.
func module() string {
	return strings.TrimSuffix(reflect.TypeFor[CallerPanic]().PkgPath(), "/internal/store")
}

// panicIsInDatabase reports whether the present panic began in bbolt, in the index, in a
// store or in a method of package engine, on a damaged page, and not in the code of a
// caller. It is the answer for a fault too where a system keeps its address from us, as
// qemu's user mode does.
func panicIsInDatabase() bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	path := module()
	for panicking := false; ; {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "runtime.") {
			panicking = true
		} else if panicking && !strings.HasPrefix(f.Function, "encoding/binary.") {
			for _, prefix := range []string{
				"go.etcd.io/bbolt.", "go.etcd.io/bbolt/", path + "/index.", path + "/internal/store.", path + "/internal/store/bolt.",
				path + "/internal/store/bolt/", path + "/engine.(",
			} {
				if strings.HasPrefix(f.Function, prefix) {
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
