package dispatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"thread/internal/planted"
	"thread/lock"
)

// evictPause is how long the kernel may take to end killed processes before the
// tree is searched for new ones.
const evictPause = 100 * time.Millisecond

// takeTree takes the consumer's tree lock. When it is held, a handler has
// outlived its supervisor, or has been killed itself; what is left of it is
// killed, and has ended when takeTree returns: a process that ends gives up what
// it holds one by one, other locks or a port perhaps after the tree lock.
func (r *room) takeTree(ctx context.Context, consumer string) (*tree, error) {
	t := &tree{path: r.treePath(consumer)}
	var killed []*os.Process
	for {
		if planted.Bug("old handler left alone") {
			_ = os.Remove(t.path) // the next lock is of another file
		}
		l, err := lock.Try(t.path, lock.Exclusive)
		if errors.Is(err, lock.ErrHeld) {
			for _, p := range evict(t.path) {
				r.log.Warn("supervise: consumer=%s killed pid=%d, left of the handler before", consumer, p.Pid)
				killed = append(killed, p)
			}
			pause, cancel := context.WithTimeout(ctx, evictPause)
			l, err = lock.Open(pause, t.path, lock.Exclusive)
			cancel()
		}
		if err == nil {
			for _, p := range killed {
				// Without a pidfd (Linux before 5.3) there is nothing to wait with.
				_ = p.WithHandle(func(fd uintptr) { awaitReadable(int(fd)) })
				p.Release()
			}
			t.lock = l
			return t, nil
		}
		if !errors.Is(err, lock.ErrHeld) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// evict kills every process that has the file at path open, and returns them.
// Which process that is, is decided by the descriptor and not by a number that
// was written down: the process is pinned by a pidfd before it is looked at.
func evict(path string) (killed []*os.Process) {
	var want unix.Stat_t
	if unix.Stat(path, &want) != nil {
		return nil
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() || !hasOpen(dir, &want) {
			continue
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if hasOpen(dir, &want) && p.Kill() == nil {
			killed = append(killed, p)
		} else {
			p.Release()
		}
	}
	return killed
}

func hasOpen(process string, want *unix.Stat_t) bool {
	fds, _ := os.ReadDir(process + "/fd") // not ours: nothing
	for _, fd := range fds {
		var got unix.Stat_t
		if unix.Stat(process+"/fd/"+fd.Name(), &got) == nil && got.Dev == want.Dev && got.Ino == want.Ino {
			return true
		}
	}
	return false
}

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
	awaitReadable(fd)
}

func awaitReadable(fd int) {
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
			return
		}
	}
}
