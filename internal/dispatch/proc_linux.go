package dispatch

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// What Linux says of processes.

// procStat is what /proc/PID/stat says of a process.
type procStat struct {
	pid, parent, session int
	began                uint64 // ticks since the system's start
}

func readProcStat(pid int) (p procStat, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false
	}
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 20 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return p, false
	}
	p.pid = pid
	p.parent, _ = strconv.Atoi(string(f[1]))
	p.session, _ = strconv.Atoi(string(f[3]))
	p.began, err = strconv.ParseUint(string(f[19]), 10, 64)
	return p, err == nil
}

// runOf returns the run id in a process's environment, and whether there is one
// and may be read.
func runOf(pid int) (string, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", false
	}
	name := []byte("\x00" + envRunID + "=")
	_, rest, ok := bytes.Cut(append([]byte{0}, text...), name)
	id, _, _ := bytes.Cut(rest, []byte{0})
	return string(id), ok
}

// holds reports whether one of the process's descriptors of the file has its lock.
func holds(pid int, want *unix.Stat_t) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	fds, _ := os.ReadDir(dir + "/fd") // not ours: nothing
	for _, fd := range fds {
		var got unix.Stat_t
		if unix.Stat(dir+"/fd/"+fd.Name(), &got) != nil || got.Dev != want.Dev || got.Ino != want.Ino {
			continue
		}
		if info, _ := os.ReadFile(dir + "/fdinfo/" + fd.Name()); bytes.Contains(info, []byte("FLOCK")) {
			return true
		}
	}
	return false
}

// beganAt returns what tells a process from a later one of the same number.
func beganAt(pid int) uint64 {
	p, _ := readProcStat(pid)
	return p.began
}

// endedBySignal reports whether a child that has ended, and is not waited for yet, was
// killed by a signal.
func endedBySignal(pid int) bool {
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	return info.Code == cldKilled || info.Code == cldDumped
}

// The values of siginfo.si_code for SIGCHLD.
const (
	cldKilled = 2
	cldDumped = 3
)

// awaitExit returns when the process, a child or the parent, has ended, and
// leaves a child to be waited for: until then, its process group's number is not
// given to anybody else.
func awaitExit(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // Linux before 5.3
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		return
	}
	defer unix.Close(fd)
	awaitReadable(fd, time.Time{})
}

// awaitReadable waits until the descriptor can be read from, or the time; for ever
// with the zero time.
func awaitReadable(fd int, until time.Time) {
	for {
		ms := -1
		if !until.IsZero() {
			ms = max(0, int(time.Until(until).Milliseconds())+1)
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms); err != unix.EINTR {
			return
		}
	}
}
