//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// stampSource is a handler that tells when its first instruction ran, or very nearly:
// linked statically, it gets to main in some 50 µs.
const stampSource = `#include <fcntl.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	long long at = t.tv_sec * 1000000000LL + t.tv_nsec;
	int f = open(argv[1], O_WRONLY);
	return argc != 2 || write(f, &at, sizeof at) != sizeof at;
}
`

// wakeUpPause lets everything that a push has started end before the next one.
const wakeUpPause = 80 * time.Millisecond

// wakeUp is the time from the start of a push to its handler: without a server, with
// one, and next to a shell that does nothing but start the same handler.
func (l *lab) wakeUp() error {
	fifo := func(name string) (string, error) {
		path := l.path(name)
		return path, syscall.Mkfifo(path, 0o600)
	}
	var commands []command
	for _, name := range []string{"spawned", "served"} {
		dir := l.path(name)
		path, err := fifo(name + ".fifo")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := run("", l.thread, "init", dir); err != nil {
			return err
		}
		// It acks nothing, so each push runs it once, and once only.
		if err := run("", l.thread, "subscribe", "--thread", dir, "--consumer", "c", "--handler", fmt.Sprintf("exec '%s' '%s'", l.stamp, path)); err != nil {
			return err
		}
		push := pushTo(l.thread, dir)
		push.Stamp, push.Pause, push.Env = path, wakeUpPause, []string{"THREAD_DISPATCH=spawn"}
		commands = append(commands, push)
	}
	stop, err := l.startServer(l.path("served"))
	if err != nil {
		return err
	}
	defer stop()
	path, err := fifo("shell.fifo")
	if err != nil {
		return err
	}
	commands = append(commands, command{Args: []string{"/bin/sh", "-c", fmt.Sprintf("exec '%s' '%s'", l.stamp, path)}, Stamp: path, Pause: wakeUpPause},
		command{Args: []string{l.empty}, Pause: wakeUpPause})
	runs, err := l.measured(min(l.rounds, 50), commands...)
	if err != nil {
		return err
	}
	l.paired("from the start of `push` to its handler's first instruction, a push every 80 ms", runs[0].took, runs[2].took, "(sh -c)", 0)
	l.paired("the same with a server", runs[1].took, runs[2].took, "(sh -c)", 0)
	l.paired("`sh -c` to the handler's first instruction, next to the empty program", runs[2].took, runs[3].took, "(empty)", 0)
	return nil
}

// startServer starts thread serve, waits until it says that it is ready, and returns
// what ends it.
func (l *lab) startServer(dir string) (stop func(), err error) {
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: l.path("notify"), Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	defer told.Close()
	server := exec.Command(l.serve, "serve", "--thread", dir)
	server.Env = append(os.Environ(), "NOTIFY_SOCKET="+l.path("notify"))
	if err := server.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = server.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = server.Wait()                          // with any code
	}
	if err := told.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		stop()
		return nil, err
	}
	message := make([]byte, 4096)
	for {
		n, err := told.Read(message)
		if err != nil {
			stop()
			return nil, fmt.Errorf("thread serve is not ready: %w", err)
		}
		if strings.HasPrefix(string(message[:n]), "READY=1") {
			return stop, nil
		}
	}
}
