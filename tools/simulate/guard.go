//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardVariable is in the environment of the process that schedules.
const guardVariable = "SIMULATE_GUARDED"

// guard runs the scheduler in a child process and, however that ends, kills the programs
// that it leaves: their held calls fail then, and Go repeats an exit that fails for ever.
func guard(args []string, stdout, stderr io.Writer) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 3
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), guardVariable+"=1")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(jobsFile, "jobs"), os.NewFile(tallyFile, "tally")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		return 3
	}
	go func() {
		<-signals
		_ = cmd.Process.Kill()
	}()
	err := cmd.Wait()
	killChildren()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() < 0 {
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// killChildren kills the children of this process, whose own become children then, until
// none is left.
func killChildren() {
	for {
		var pids []byte
		tasks, _ := os.ReadDir("/proc/self/task")
		for _, task := range tasks {
			more, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
			pids = append(append(pids, ' '), more...)
		}
		for _, text := range strings.Fields(string(pids)) {
			if pid, err := strconv.Atoi(text); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err != nil && !errors.Is(err, syscall.EINTR) {
				return
			}
			if pid == 0 {
				break
			}
		}
		time.Sleep(time.Millisecond)
	}
}
