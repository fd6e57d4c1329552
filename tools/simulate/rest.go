//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// waits are the calls in which a thread may sleep for long. In others it sleeps for a moment: for
// a lock of the kernel, for a child in vfork, in a short pause of the Go runtime.
var waits = map[int]bool{
	unix.SYS_FUTEX: true, unix.SYS_EPOLL_PWAIT: true, unix.SYS_FLOCK: true, unix.SYS_WAIT4: true, unix.SYS_WAITID: true,
	unix.SYS_READ: true, unix.SYS_WRITE: true, unix.SYS_PPOLL: true, unix.SYS_PSELECT6: true, unix.SYS_CONNECT: true,
	unix.SYS_ACCEPT4: true, unix.SYS_RECVFROM: true, unix.SYS_RECVMSG: true, unix.SYS_RT_SIGTIMEDWAIT: true, unix.SYS_RT_SIGSUSPEND: true,
}

// thread is a thread of a program.
type thread struct {
	id  int
	fd  int  // of its file syscall
	own bool // it waits for another thread of its process, without a time limit
}

// rest reports whether every thread of every program sleeps or is held. The process that has
// continued last is looked at first. A process that has not computed since the last look can only
// have been woken from outside, so that most of its threads need no second look.
func (s *schedule) rest(last *process) bool {
	if len(s.born) > 0 && time.Since(s.lastCall) < time.Second {
		return false
	}
	if last != nil && last.runs() {
		return false
	}
	for changed := true; changed; { // one that was seen asleep may have been woken by one seen later
		changed = false
		for _, p := range s.processes {
			before := p.rested
			if p != last && p.runs() {
				return false
			}
			changed = changed || p != last && p.rested != before
		}
		last = nil
	}
	return !s.take(0)
}

// runs reports whether a thread of the process runs, or is about to.
func (p *process) runs() bool {
	if p.ended || p.gone {
		return false
	}
	// The files of a thread that waits for the kernel in its end still have the call before.
	if p.ending || p.suspect {
		left, busy := p.left()
		if p.gone = left == 0; p.gone || p.ending || busy && !p.holds(p.pid) {
			return !p.gone
		}
	}
	now := p.time()
	if len(p.threads) > 0 && now == p.rested {
		return p.anyRuns(false)
	}
	p.rested = 0
	var dir unix.Stat_t
	if p.tasks == nil || unix.Fstat(int(p.tasks.Fd()), &dir) != nil || int(dir.Nlink) != 2+len(p.threads) {
		if !p.list() {
			return false
		}
	}
	if p.anyRuns(true) {
		return true
	}
	p.rested = now
	return false
}

// anyRuns looks at the threads, or only at those that another process can wake.
func (p *process) anyRuns(all bool) bool {
	var b [256]byte
	for i := range p.threads {
		t := &p.threads[i]
		if !all && t.own || i == 1 && p.product {
			continue
		}
		if t.own = false; p.holds(t.id) {
			continue
		}
		n, err := unix.Pread(t.fd, b[:], 0)
		if err != nil { // it has ended
			p.forget()
			return p.list()
		}
		number, rest, _ := bytes.Cut(b[:n], []byte(" "))
		nr, err := strconv.Atoi(string(number))
		switch {
		case nr == -1:
			n, _ := p.left()
			p.gone = n == 0
			return n > 0
		case err != nil || !waits[nr]: // err: "running"
			return true
		}
		if nr != unix.SYS_FUTEX {
			continue
		}
		// The third argument is the value to wait for, the fourth one the time.
		switch args := bytes.SplitN(rest, []byte(" "), 5); {
		case len(args) < 5:
		case string(args[2]) == "0xffffffff":
			return true // a lock of the Go runtime, which its monitor may have
		default:
			t.own = string(args[3]) == "0x0"
		}
	}
	return false
}

func (p *process) holds(tid int) bool {
	for _, c := range p.held {
		if int(c.tid) == tid {
			return true
		}
	}
	return false
}

// list opens the files of the threads that are new, and reports whether the process is there.
func (p *process) list() bool {
	path := "/proc/" + strconv.Itoa(p.pid) + "/task"
	var err error
	if p.tasks == nil {
		p.tasks, err = os.Open(path)
	} else {
		_, err = p.tasks.Seek(0, io.SeekStart)
	}
	if err != nil {
		p.forget()
		p.gone = true
		return false
	}
	names, _ := p.tasks.Readdirnames(-1) // in the order in which they began
	known := p.threads
	p.threads = nil
	for _, name := range names {
		id, _ := strconv.Atoi(name)
		if i := slices.IndexFunc(known, func(t thread) bool { return t.id == id }); i >= 0 {
			p.threads = append(p.threads, known[i])
			known = slices.Delete(known, i, i+1)
			continue
		}
		if fd, err := unix.Open(path+"/"+name+"/syscall", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			p.threads = append(p.threads, thread{id: id, fd: fd})
		}
		if len(p.threads) == 2 && p.monitor == 0 {
			p.monitor, _ = unix.Open(path+"/"+name+"/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
	}
	for _, t := range known {
		unix.Close(t.fd)
	}
	return len(p.threads) > 0
}

// left returns how many threads a process has that has not ended, and whether its first one waits
// for the kernel or has ended before others.
func (p *process) left() (n int, busy bool) {
	line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/stat")
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) < 18 {
		return 0, false
	}
	n, _ = strconv.Atoi(string(fields[17]))
	state := fields[0][0]
	if state == 'X' || state == 'Z' && n < 2 {
		return 0, false
	}
	return n, state == 'D' || state == 'Z'
}

// await waits for a call or the end of a program, at most so long.
func (s *schedule) await(limit time.Duration) {
	fds := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}
	for _, p := range s.processes {
		if p.ended || p.gone {
			continue
		}
		if fd, err := unix.PidfdOpen(p.pid, 0); err == nil {
			defer unix.Close(fd)
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	timeout := unix.NsecToTimespec(int64(limit))
	_, _ = unix.Ppoll(fds, &timeout, nil)
}

func (p *process) forget() {
	for _, t := range p.threads {
		unix.Close(t.fd)
	}
	if p.monitor > 0 {
		unix.Close(p.monitor)
	}
	p.tasks.Close()
	p.threads, p.tasks, p.monitor, p.rested = nil, nil, 0, 0
}

// time returns how long a process has computed, by the clock that clock_getcpuclockid names.
// Without its second thread, by schedstat: in Go, the monitor, which looks at the others all the
// time.
func (p *process) time() time.Duration {
	var clock unix.Timespec
	_ = unix.ClockGettime(int32(^p.pid<<3|2), &clock)
	t := time.Duration(clock.Nano())
	if p.product && p.monitor > 0 {
		var b [64]byte
		n, _ := unix.Pread(p.monitor, b[:], 0)
		text, _, _ := bytes.Cut(b[:max(n, 0)], []byte(" "))
		nanoseconds, _ := strconv.Atoi(string(text))
		t -= time.Duration(nanoseconds)
	}
	return t
}
