package lock

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// onMount lets statfs say for the length of a test that every path is on a file
// system of that number. It returns the paths that were asked about.
func onMount(t *testing.T, number int64) *[]string {
	t.Helper()
	asked := new([]string)
	real := statfs
	statfs = func(path string, st *syscall.Statfs_t) error {
		*asked = append(*asked, path)
		if err := real(path, st); err != nil {
			return err
		}
		setType(st, number)
		return nil
	}
	t.Cleanup(func() { statfs = real })
	return asked
}

// The numbers are from linux/magic.h, written out as statfs(2) has them.
func TestNetworkMounts(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		number int64
		kind   string // "": a local one
	}{
		{0xEF53, ""}, {0x58465342, ""}, {0x9123683E, ""}, {0xF2F52010, ""}, {0x4D44, ""}, {0x2011BAB0, ""}, {0x01021994, ""},
		{0x794C7630, ""}, {0x2FC12FC1, ""}, {0x24051905, ""}, {0x858458F6, ""}, {0x01161970, ""}, {0x7461636F, ""},
		{0x6969, "NFS"}, {0x517B, "SMB"}, {0xFF534D42, "SMB"}, {0xFE534D42, "SMB"}, {0x01021997, "9P"}, {0x00C36400, "CephFS"},
		{0x5346414F, "AFS"}, {0x6B414653, "AFS"}, {0x0BD00BD0, "Lustre"}, {0x786F4256, "a VirtualBox share"},
		{0x73757245, "Coda"}, {0x564C, "NCP"}, {0x20030528, "OrangeFS"}, {0x19830326, "BeeGFS"}, {0xBACBACBC, "a VMware share"}, {0x7C7C6673, "a Parallels share"},
		{0x65735546, ""}, // FUSE: the type of the mount decides, and this one is local
	} {
		onMount(t, tt.number)
		err := CheckMount(filepath.Join(dir, "not", "there", "yet"))
		if (err != nil) != (tt.kind != "") {
			t.Errorf("%#x: %v", tt.number, err)
		}
		if err != nil && (!errors.Is(err, ErrNetwork) || !strings.Contains(err.Error(), " is on "+tt.kind+",")) {
			t.Errorf("%#x: %v", tt.number, err)
		}
	}
}

// TestNetworkAllowed: the variable permits it, and one system call is enough for a
// directory that exists.
func TestNetworkAllowed(t *testing.T) {
	asked := onMount(t, 0x6969)
	dir := t.TempDir()
	t.Setenv("THREAD_NETWORK", "allow") // is for the program, see package cli
	if err := CheckMount(dir); !errors.Is(err, ErrNetwork) {
		t.Errorf("before it is allowed: %v", err)
	}
	AllowNetwork()
	defer anyMount.Store(false)
	if err := CheckMount(dir); err != nil {
		t.Errorf("when it is allowed: %v", err)
	}
	if len(*asked) != 2 {
		t.Errorf("asked about %q", *asked)
	}
}

// TestFUSEMounts: the type of a mount comes from mountinfo, and decides.
func TestFUSEMounts(t *testing.T) {
	mounts := []byte(`22 27 0:21 / /proc rw,relatime - proc proc rw
40 27 0:52 / /mnt/a\040b rw,nosuid shared:7 master:2 - fuse.sshfs host:/x rw,user_id=0
41 27 0:53 / /mnt/c rw - fuseblk /dev/sdb1 rw
42 27 259:1 / /mnt/d rw - virtiofs share rw
43 27
43 27 - x
44 27 0:54 - fuse.sshfs
45 27 0:55 / /mnt/e rw - 
45 27 0:56 / /mnt/e rw fuse.sshfs host:/x
`)
	for device, want := range map[string]string{
		"0:52": "fuse.sshfs", "0:53": "fuseblk", "259:1": "virtiofs", "0:5": "", "0:21": "proc", "0:54": "fuse.sshfs", "0:55": "", "0:56": "",
	} {
		if got := mountType(mounts, device); got != want {
			t.Errorf("device %s is %q, want %q", device, got, want)
		}
	}
	for mount, network := range map[string]bool{
		"fuse.sshfs": true, "virtiofs": true, "fuse.rclone": true, "fuseblk": false, "fuse.mergerfs": false, "fuse": false, "": false,
	} {
		if got := fuseNetwork(mount) != ""; got != network {
			t.Errorf("%s: network is %v", mount, got)
		}
	}
	// The device of a directory is found in the real table.
	var st syscall.Stat_t
	if err := syscall.Stat("/proc", &st); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	device := deviceName(uint64(st.Dev)) //nolint:unconvert // it has 32 bits on mips
	if got := mountType(table, device); got != "proc" {
		t.Errorf("/proc is on %q", got)
	}
}

// TestNoMount: of a path that no directory above it is known for, every kind is
// accepted, after one look at each of them.
func TestNoMount(t *testing.T) {
	real := statfs
	defer func() { statfs = real }()
	var asked []string
	statfs = func(path string, _ *syscall.Statfs_t) error {
		asked = append(asked, path)
		return syscall.EACCES
	}
	for path, want := range map[string][]string{"/a/b": {"/a/b", "/a", "/"}, "a/b": {"a/b", "a", "."}} {
		asked = nil
		if err := CheckMount(path); err != nil || !slices.Equal(asked, want) {
			t.Errorf("%q, %v", asked, err)
		}
	}
	// A file system of FUSE whose path is gone is accepted.
	statfs = func(_ string, st *syscall.Statfs_t) error {
		setType(st, fuseType)
		return nil
	}
	if err := CheckMount(filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Error(err)
	}
}

// setType sets the field whose size differs between processors.
func setType(st *syscall.Statfs_t, number int64) {
	field := reflect.ValueOf(st).Elem().FieldByName("Type")
	if field.CanInt() {
		field.SetInt(int64(int32(number)))
		if field.Type().Size() == 8 {
			field.SetInt(number)
		}
		return
	}
	field.SetUint(uint64(number))
}
