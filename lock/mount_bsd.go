//go:build darwin || freebsd

package lock

import "syscall"

// mountLocal is MNT_LOCAL of sys/mount.h, the same on both systems: the files are
// kept on this host.
const mountLocal = 0x1000

func mountKind(path string) (kind string) {
	nearest(path, func(path string) error {
		var st syscall.Statfs_t
		if err := syscall.Statfs(path, &st); err != nil {
			return err
		}
		if st.Flags&mountLocal == 0 {
			kind = "a network file system ("
			for _, c := range st.Fstypename {
				if c == 0 {
					break
				}
				kind += string(rune(c))
			}
			kind += ")"
		}
		return nil
	})
	return kind
}
