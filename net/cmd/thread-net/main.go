// Command thread-net has the verbs of thread for threads in PostgreSQL. The program
// thread runs it when a thread is named by a URL.
package main

import (
	"thread/internal/cli"
	"thread/internal/verb/core"
	"thread/internal/verb/history"
	"thread/internal/verb/outbox"
	"thread/internal/verb/serve"
	"thread/net/internal/verb"
	opener "thread/net/servers"
)

func main() {
	opener.Use()
	core.SetCheck(verb.Check)
	serve.SetRemote(verb.Remote)
	cli.Main("thread-net", core.Verbs, history.Verbs, outbox.Verbs, serve.Verbs, verb.Verbs)
}
