// Package serve has the verbs of thread-serve: the resident process, and those that
// talk to it.
package serve

import "thread/internal/cli"

// Verbs are the verbs of thread-serve.
var Verbs = []cli.Entry{
	{Name: "serve", Verb: serveVerb},
	{Name: "top", Verb: topVerb},
	{Name: "mcp", Verb: mcpVerb},
	{Name: "lanes", Verb: lanesVerb},
	{Name: "send", Verb: sendVerb},
	{Name: "abort", Verb: abortVerb},
	{Name: "wait", Verb: waitVerb},
	{Name: "token add", Verb: tokenAddVerb},
	{Name: "token list", Verb: tokenListVerb},
	{Name: "token revoke", Verb: tokenRevokeVerb},
	{Name: "bench", Verb: benchVerb},
}
