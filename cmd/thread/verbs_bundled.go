//go:build bundled

package main

import (
	"thread/internal/cli"
	"thread/internal/verb/core"
	"thread/internal/verb/history"
	"thread/internal/verb/outbox"
	"thread/internal/verb/serve"
	"thread/internal/verb/sqlite"
)

var verbs = [][]cli.Entry{core.Verbs, outbox.Verbs, sqlite.Verbs, history.Verbs, serve.Verbs}
