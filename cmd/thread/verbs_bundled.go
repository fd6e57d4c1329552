//go:build bundled

package main

import (
	"thread/internal/cli"
	"thread/internal/verb/core"
	"thread/internal/verb/outbox"
	"thread/internal/verb/serve"
	"thread/internal/verb/sqlite"
)

var verbs = [][]cli.Entry{core.Verbs, sqlite.Verbs, serve.Verbs, outbox.Verbs}
