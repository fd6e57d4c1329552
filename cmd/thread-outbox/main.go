// Command thread-outbox has the verbs of the transactional outbox: outbox,
// notifications and dm. The program thread runs it.
package main

import (
	"thread/internal/cli"
	"thread/internal/verb/outbox"
)

func main() { cli.Main("thread-outbox", outbox.Verbs) }
