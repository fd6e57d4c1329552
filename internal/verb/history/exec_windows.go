package history

import (
	"os"
	"strconv"
)

// forwarded are the signals that are caught: the console sends them to the command,
// too.
func forwarded() []os.Signal { return []os.Signal{os.Interrupt} }

func passOn(os.Signal) bool { return false }

// terminate ends the process; there is no milder way.
func terminate(p *os.Process) { _ = p.Kill() }

func exitOf(s *os.ProcessState) (int, string) {
	return s.ExitCode(), "exit " + strconv.Itoa(s.ExitCode())
}
