// Command thread-serve has the resident process of thread and the verbs that talk to
// it. The program thread runs it.
package main

import (
	"thread/internal/cli"
	"thread/internal/verb/serve"
)

func main() { cli.Main("thread-serve", serve.Verbs) }
