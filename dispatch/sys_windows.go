package dispatch

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/windows"
)

// Windows has no O_NOFOLLOW; making a symbolic link takes a privilege there.
const (
	openNoFollow = 0
	openNoWait   = 0
)

const shell = "sh"

// Windows does not hand locks to children: the supervisor claims its consumer
// itself. Nor are there process groups to be killed: at a time limit only the
// shell ends, and a handler whose supervisor was killed goes on unseen. See
// docs/DISPATCH.md.
const inheritsLocks = false

func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

func sealDescriptors() {} // handles are inherited one by one, by name

func startWith(cmd *exec.Cmd, c *claim) error {
	c.drop()
	return start(cmd)
}

func inherited(int) *os.File { panic("unreachable: Windows hands over no locks") }

func unlock(*os.File) {} // closing does it: nobody else has the handle

func readNow(uintptr, []byte) (int, error) { return 0, errNothingReady }

func terminateGroup(cmd *exec.Cmd) { cmd.Process.Kill() }
func killGroup(cmd *exec.Cmd)      { cmd.Process.Kill() }

func exitText(p *os.ProcessState) string { return "exit " + strconv.Itoa(p.ExitCode()) }

type tree struct{}

func (r *room) takeTree(context.Context, string) (*tree, error) { return &tree{}, nil }
func (t *tree) attach(*exec.Cmd)                                {}
func (t *tree) leave()                                          {}

// awaitExit returns when the process has ended.
func awaitExit(pid int) {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return // the caller waits as well
	}
	defer windows.CloseHandle(h)
	windows.WaitForSingleObject(h, windows.INFINITE)
}
func (t *tree) abandon() {}
