//go:build planted && unix

package engine

import (
	"os"
	"syscall"
)

func dropLock(f *os.File) { syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
