package lock

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// statfs is exchanged by tests.
var statfs = syscall.Statfs

// networkTypes are the numbers by which statfs(2) names file systems that other
// hosts, or the host of a virtual machine, change at the same time (linux/magic.h
// and the sources of those that are not there). Cluster file systems whose locks
// and maps do hold between hosts, gfs2 and ocfs2, are not among them.
func networkTypes(number uint32) string {
	switch number {
	case 0x6969:
		return "NFS"
	case 0x517B, 0xFF534D42, 0xFE534D42:
		return "SMB"
	case 0x01021997:
		return "9P"
	case 0x00C36400:
		return "CephFS"
	case 0x5346414F, 0x6B414653:
		return "AFS"
	case 0x73757245:
		return "Coda"
	case 0x564C:
		return "NCP"
	case 0x0BD00BD0:
		return "Lustre"
	case 0x20030528:
		return "OrangeFS"
	case 0x19830326:
		return "BeeGFS"
	case 0x786F4256:
		return "a VirtualBox share"
	case 0xBACBACBC:
		return "a VMware share"
	case 0x7C7C6673:
		return "a Parallels share"
	}
	return ""
}

const fuseType = 0x65735546

func mountKind(path string) (kind string) {
	nearest(path, func(path string) error {
		var st syscall.Statfs_t
		if err := statfs(path, &st); err != nil {
			return err
		}
		if kind = networkTypes(uint32(st.Type)); uint32(st.Type) == fuseType {
			kind = fuseKind(path)
		}
		return nil
	})
	return kind
}

// mountInfo is exchanged by tests.
var mountInfo = "/proc/self/mountinfo"

// fuseKind tells what is behind a FUSE mount. One on a block device, or one that
// only puts local directories together, is as good as the kernel's own: the kernel
// keeps its locks. Those that are known to reach another host are not.
func fuseKind(path string) string {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return ""
	}
	mounts, _ := os.ReadFile(mountInfo)                               // without it, the type is unknown
	return fuseNetwork(mountType(mounts, deviceName(uint64(st.Dev)))) //nolint:unconvert // it has 32 bits on mips
}

func deviceName(dev uint64) string {
	return strconv.FormatUint(uint64(unix.Major(dev)), 10) + ":" + strconv.FormatUint(uint64(unix.Minor(dev)), 10)
}

// mountType finds the type of the mount of a device, "fuse.sshfs" for example, in
// /proc/self/mountinfo (proc(5)): the third field is the device, and the type is
// the first field behind a lone "-".
func mountType(mounts []byte, device string) string {
	for line := range bytes.Lines(mounts) {
		before, after, ok := bytes.Cut(line, []byte(" - "))
		fields := bytes.Fields(before)
		if !ok || len(fields) < 3 || string(fields[2]) != device {
			continue
		}
		if t := bytes.Fields(after); len(t) > 0 {
			return string(t[0])
		}
	}
	return ""
}

func fuseNetwork(mountType string) string {
	switch mountType {
	case "virtiofs", "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.goofys", "fuse.gcsfuse", "fuse.mount-s3", "fuse.mountpoint-s3",
		"fuse.blobfuse", "fuse.blobfuse2", "fuse.davfs", "fuse.davfs2", "fuse.curlftpfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs",
		"fuse.mfs", "fuse.moosefs", "fuse.lizardfs", "fuse.juicefs", "fuse.JuiceFS", "fuse.seaweedfs", "fuse.smbnetfs", "fuse.grpcfuse",
		"fuse.osxfs", "fuse.vmhgfs-fuse", "fuse.prl_fsd", "fuse.beegfs", "fuse.cvmfs2", "fuse.afs":
		return mountType
	}
	return ""
}
