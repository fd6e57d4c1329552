// Package cli is what the verbs of all programs share: the grammar of a command line,
// help, output, the table of error words and the exit codes (0, 1 and 2, T-04). It is
// internal to this program.
package cli

import (
	"io"
	"os"

	"thread/internal/programs"
	"thread/lock"
)

// Main is the main function of a program: its name, and the lists of its verbs.
func Main(name string, lists ...[]Entry) {
	programs.Is(name)
	if allowsNetwork() {
		lock.AllowNetwork()
	}
	p := NewProgram(name, lists...)
	os.Exit(p.Run(os.Args[1:], os.Stdin, standard(os.Stdout, 1), standard(os.Stderr, 2)))
}

// envNetwork set to "allow" lets the program use directories on network file systems.
// The library has engine.WithNetworkMount.
const envNetwork = "THREAD_NETWORK"

func allowsNetwork() bool { return os.Getenv(envNetwork) == "allow" }

// Run is the whole program: it reads the command line args, without the
// program's name, and returns the exit code.
func (p *Program) Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &App{program: p, Stdin: stdin, Out: Output{W: stdout}, Stderr: stderr}
	return a.finish(a.start(args))
}
