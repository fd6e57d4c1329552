//go:build !bundled

package main

import (
	"thread/internal/cli"
	"thread/internal/verb/core"
)

var verbs = [][]cli.Entry{core.Verbs}
