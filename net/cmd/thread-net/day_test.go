//go:build !windows

package main

import (
	"net/url"
	"testing"

	"thread/internal/agentday"
	"thread/net/internal/pgtest"
)

// TestDay: the day of an agent, with a thread in PostgreSQL.
func TestDay(t *testing.T) {
	base := pgtest.Schema(t)
	agentday.Run(t, func(name string) string { return base + url.QueryEscape(name) })
}
