// Command thread-history has the verbs about recorded runs, sessions and messages. The
// program thread runs it.
package main

import (
	"thread/internal/cli"
	"thread/internal/verb/history"
)

func main() { cli.Main("thread-history", history.Verbs) }
