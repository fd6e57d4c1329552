//go:build unix

package bolt

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// changeIdentity returns text that is different for each file, and for one file after
// each change of it.
func changeIdentity(f *os.File) (id string, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if cerr := conn.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) }); cerr != nil {
		return "", cerr
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Ctim), err
}
