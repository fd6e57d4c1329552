package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// network is a bridge, in a separate network namespace, to which the namespaces of a
// server and of workers are connected.
type network struct {
	t    *testing.T
	name string // of the namespaces, before their numbers; the bridge's has none
}

// newNetwork skips the test where namespaces cannot be had, unless THREAD_NETNS demands
// them.
func newNetwork(t *testing.T, hosts int) *network {
	t.Helper()
	n := &network{t, fmt.Sprintf("thread%d-", os.Getpid())}
	out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput()
	switch must := os.Getenv("THREAD_NETNS") != ""; {
	case err != nil && must:
		t.Fatalf("THREAD_NETNS is set, and ip netns: %v: %s", err, out)
	case err != nil:
		t.Skipf("no network namespaces, and THREAD_NETNS does not demand them: %v: %s", err, out)
	}
	t.Cleanup(func() { n.ip("netns", "del", n.name) })
	n.ip("-n", n.name, "link", "add", "hub", "type", "bridge")
	n.ip("-n", n.name, "link", "set", "hub", "up")
	for i := range hosts {
		ns := n.host(i)
		n.ip("netns", "add", ns)
		t.Cleanup(func() {
			n.end(i)
			n.ip("netns", "del", ns)
		})
		n.ip("-n", n.name, "link", "add", fmt.Sprint("port", i), "type", "veth", "peer", "name", "eth0", "netns", ns)
		n.ip("-n", ns, "addr", "add", address(i)+"/24", "dev", "eth0")
		n.ip("-n", ns, "link", "set", "lo", "up")
		n.ip("-n", ns, "link", "set", "eth0", "up")
		n.ip("-n", n.name, "link", "set", fmt.Sprint("port", i), "up")
		n.connect(i)
	}
	return n
}

func address(i int) string { return fmt.Sprint("10.213.77.", i+1) }

func (n *network) host(i int) string { return n.name + strconv.Itoa(i) }

func (n *network) ip(args ...string) string {
	n.t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("ip %s: %v: %s", args, err, out)
	}
	return string(out)
}

// connect plugs a host in, and cut pulls the plug: its link stays up, and packets vanish.
func (n *network) connect(i int) {
	n.ip("-n", n.name, "link", "set", fmt.Sprint("port", i), "master", "hub")
}

func (n *network) cut(i int) { n.ip("-n", n.name, "link", "set", fmt.Sprint("port", i), "nomaster") }

// processes are the processes of a host.
func (n *network) processes(i int) (list []int) {
	for _, word := range strings.Fields(n.ip("netns", "pids", n.host(i))) {
		pid, _ := strconv.Atoi(word)
		list = append(list, pid)
	}
	return list
}

// signal sends a signal to all processes of a host but one.
func (n *network) signal(i int, s syscall.Signal, but int) {
	for _, pid := range n.processes(i) {
		if pid != but {
			_ = syscall.Kill(pid, s) // it may have ended
		}
	}
}

// stop stops a host: what it has started meanwhile, too.
func (n *network) stop(i int) {
	for before := []int(nil); ; {
		n.signal(i, syscall.SIGSTOP, 0)
		list := n.processes(i)
		if slices.Equal(list, before) {
			return
		}
		before = list
	}
}

// end kills all that runs on a host.
func (n *network) end(i int) {
	for deadline := time.Now().Add(patience); len(n.processes(i)) > 0 && time.Now().Before(deadline); {
		n.signal(i, syscall.SIGKILL, 0)
	}
}
