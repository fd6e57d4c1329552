// Command thread is an event queue that lives in a directory.
//
// This package holds the grammar of the command line, its words and its exit
// codes (0, 1 and 2, contract T-04), one file per verb. What a verb does lives
// in the packages below.
package main

import (
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, standard(os.Stdout, 1), standard(os.Stderr, 2))) }

// run is the whole program: it reads the command line args, without the
// program's name, and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, out: output{w: stdout}, stderr: stderr}
	return a.finish(a.start(args))
}
