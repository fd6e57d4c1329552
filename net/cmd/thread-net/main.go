// Command thread-net has the verbs of thread for threads in PostgreSQL. The program
// thread runs it when a thread is named by a URL.
package main

import (
	"thread/internal/cli"
	"thread/internal/verb/core"
	"thread/net/internal/verb"
)

func main() {
	cli.SetServers(verb.Servers{})
	core.SetCheck(verb.Check)
	cli.Main("thread-net", core.Verbs, verb.Verbs)
}
