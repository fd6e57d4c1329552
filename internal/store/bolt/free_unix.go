//go:build unix

package bolt

import (
	"os"
	"syscall"
)

// freedAtOnce is how many bytes of a file that has no name any more are given back in one step.
const freedAtOnce = 32 << 20

// freeSlowly gives the space of a file that was replaced back, from its end, a part at a
// time. At once it would be one transaction of the file system, for which every sync next to it
// waits. A file that has another name stays as it is, and so does one that is not open for
// writing. No process reads it: who locks a file looks then whether it is still the database.
//
// The new name in dir must be durable, which is looked at here again, without exceptions
// for file systems that cannot sync a directory: after a loss of power the old file could
// have its name back, and must have its pages then.
func freeSlowly(f *os.File, dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	err = d.Sync()
	d.Close()
	if err != nil {
		return
	}
	info, err := f.Stat()
	if err != nil {
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Nlink != 0 {
		return
	}
	for size := info.Size() - freedAtOnce; size > 0; size -= freedAtOnce {
		if f.Truncate(size) != nil || f.Sync() != nil {
			return // it is all given back when it is closed
		}
	}
}
