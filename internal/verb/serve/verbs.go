// Package serve has the verbs of thread-serve: the resident process, and those that
// talk to it.
package serve

import "thread/internal/cli"

// Verbs are the verbs of thread-serve.
var Verbs = []cli.Entry{
	{Name: "serve", Build: serveVerb},
	{Name: "top", Build: topVerb},
	{Name: "mcp", Build: mcpVerb},
	{Name: "lanes", Build: lanesVerb},
	{Name: "send", Build: sendVerb},
	{Name: "abort", Build: abortVerb},
	{Name: "wait", Build: waitVerb},
	{Name: "bench", Build: benchVerb},
}
