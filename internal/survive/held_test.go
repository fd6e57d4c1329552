//go:build linux

package survive

import (
	"bufio"
	"os"
	"strings"
	"syscall"
)

// started starts a dispatch and gives the fault to the first process of the role.
func (tk *take) started(role, log string, args []string) (killed, injected bool, err error) {
	verb, _, alone := strings.Cut(role, ", alone")
	if alone {
		if err := tk.holdUp(); err != nil {
			return false, false, err
		}
	}
	meet, err := fifo(tk.path("meet"))
	if err != nil {
		return false, false, err
	}
	defer meet.Close()
	answer, err := fifo(tk.path("meet.go"))
	if err != nil {
		return false, false, err
	}
	defer answer.Close()
	first := tk.command([]string{"SURVIVE_VICTIM=" + verb, "SURVIVE_MEET=" + tk.path("meet")}, "dispatch")
	if err := first.Start(); err != nil {
		return false, false, err
	}
	defer first.Wait() // killed or not, what it leaves decides
	pid, err := heard(bufio.NewReader(meet), meet)
	if err != nil {
		first.Process.Kill()
		return false, false, err
	}
	if alone {
		if err := tk.held.await(); err != nil {
			return false, false, err
		}
		if err := killParent(pid); err != nil {
			return false, false, err
		}
	}
	tr, err := trace(pid, log, args...)
	if err != nil {
		return false, false, err
	}
	if alone {
		if err := tk.held.release(); err != nil {
			return false, false, err
		}
	}
	if _, err := answer.Write([]byte("go\n")); err != nil {
		return false, false, err
	}
	return tr.end()
}

// stopped starts a server and asks it to end while handlers run, which then continue.
// The fault is given to the server from the signal on.
func (tk *take) stopped(_, log string, args []string) (killed, injected bool, err error) {
	if err := tk.holdUp(); err != nil {
		return false, false, err
	}
	server := tk.command(nil, "serve")
	if err := server.Start(); err != nil {
		return false, false, err
	}
	defer server.Wait()
	if err := tk.held.await(); err != nil {
		return false, false, err
	}
	tr, err := trace(server.Process.Pid, log, args...)
	if err != nil {
		return false, false, err
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		return false, false, err
	}
	if err := tk.held.release(); err != nil {
		return false, false, err
	}
	return tr.end()
}

// holdup holds the first handler of each consumer up. Its pipes stay until all is
// over: a handler may come to them late.
type holdup struct{ at, let *os.File }

func (tk *take) holdUp() (err error) {
	if tk.held.at, err = fifo(tk.path("at")); err == nil {
		tk.held.let, err = fifo(tk.path("let"))
	}
	return err
}

// await waits until the handlers of both consumers run.
func (h *holdup) await() error {
	said := bufio.NewReader(h.at)
	for range 2 {
		if _, err := heard(said, h.at); err != nil {
			return err
		}
	}
	return nil
}

// release lets them continue. Each reads one byte: a shell reads no further than
// the end of its line.
func (h *holdup) release() error {
	_, err := h.let.Write([]byte("\n\n"))
	return err
}

func (h *holdup) close() {
	h.at.Close()
	h.let.Close()
}
