//go:build linux

package lock

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"thread/internal/faults"
)

// TestCreateMeanwhile: a file that another process makes between the look for it and its
// creation is opened; with O_EXCL it is in the way.
func TestCreateMeanwhile(t *testing.T) {
	for _, flag := range []int{os.O_RDWR, os.O_RDWR | os.O_EXCL} {
		dir := faults.Dir(t)
		path := filepath.Join(dir, "file")
		opens := 0
		fault := faults.Fault{Before: func(c faults.Call, _ int) {
			if c.Name != "openat" {
				return
			}
			if opens++; opens == 2 || flag&os.O_EXCL != 0 {
				if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
					t.Error(err)
				}
			}
		}}
		var f *os.File
		var err error
		fault.Run(t, dir, func() { f, err = Create(path, flag) })
		if flag&os.O_EXCL != 0 {
			if !os.IsExist(err) {
				t.Errorf("with O_EXCL: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if info, err := f.Stat(); err != nil || info.Size() != 6 || opens != 3 {
			t.Errorf("%d bytes after %d opens, %v", info.Size(), opens, err)
		}
		f.Close()
	}
}

// TestFuseOfADevice: what is mounted at a directory is found by its device.
func TestFuseOfADevice(t *testing.T) {
	dir := t.TempDir()
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	mounts := filepath.Join(dir, "mountinfo")
	defer func(was string) { mountInfo = was }(mountInfo)
	mountInfo = mounts
	line := func(device, kind string) string { return "36 35 " + device + " / /mnt rw - " + kind + " source rw\n" }
	own := deviceName(uint64(st.Dev)) //nolint:unconvert // it has 32 bits on mips
	for text, want := range map[string]string{
		line("0:1", "ext4") + line(own, "fuse.sshfs"): "fuse.sshfs",
		line(own, "fuse.mergerfs"):                    "",
		line("0:1", "fuse.sshfs"):                     "",
		"":                                            "",
	} {
		if err := os.WriteFile(mounts, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := fuseKind(dir); got != want {
			t.Errorf("%q, want %q, of %s", got, want, text)
		}
	}
	if got := fuseKind(filepath.Join(dir, "gone")); got != "" {
		t.Errorf("%q of nothing", got)
	}
}
