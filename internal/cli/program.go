// Package cli is what the verbs of all programs share: the grammar of a command line,
// help, output, the table of error words and the exit codes (0, 1 and 2, T-04). It is
// internal to this program.
package cli

import (
	"io"
	"os"
	"runtime/debug"

	"thread/internal/programs"
	"thread/internal/terminal"
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
	a := &App{program: p, Stdin: stdin, Out: terminal.Output{W: stdout}, Stderr: stderr}
	return a.finish(a.start(args))
}

// stamped is the version that a published build is given by the linker.
var stamped string

// devel is the version of a build that has none: clients look for three numbers.
const devel = "0.0.0-devel"

// Version returns the version that was stamped, else the module's, or for a build
// from a checkout devel, with the revision it was built from where that is known.
func Version() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devel
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = "+" + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ".changes"
		}
	}
	if revision == "" {
		return devel
	}
	return devel + revision + modified
}
