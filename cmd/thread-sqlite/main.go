// Command thread-sqlite has the verbs of thread that need SQLite: import, export,
// mirror, outbox take, history import and history mirror. The program thread runs it.
package main

import (
	"thread/internal/cli"
	"thread/internal/verb/sqlite"
)

func main() { cli.Main("thread-sqlite", sqlite.Verbs) }
