package backup

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Identity names a file by when it was made, too: numbers of files are given again.
func Identity(f *os.File) (id string, err error) {
	var st unix.Statx_t
	conn, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	err = conn.Control(func(fd uintptr) {
		const want = unix.STATX_BTIME | unix.STATX_INO
		serr := unix.Statx(int(fd), "", unix.AT_EMPTY_PATH, want, &st)
		if serr == nil && st.Mask&want == want && st.Btime.Sec > 0 {
			id = fmt.Sprintf("%d:%d %d %d.%09d", st.Dev_major, st.Dev_minor, st.Ino, st.Btime.Sec, st.Btime.Nsec)
		} // else: a kernel or a file system that does not know
	})
	return id, err
}
