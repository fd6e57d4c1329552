// Package verb has the verbs of thread-bridge.
package verb

import "thread/internal/cli"

// Verbs are the verbs of thread-bridge.
var Verbs = []cli.Entry{
	{Name: "trigger run", Build: runVerb},
	{Name: "trigger validate", Build: validateVerb},
	{Name: "trigger send", Build: sendVerb},
	{Name: "trigger status", Build: statusVerb},
	{Name: "trigger health", Build: healthVerb},
	{Name: "trigger pause", Build: pauseVerb},
	{Name: "trigger resume", Build: resumeVerb},
	{Name: "trigger seek", Build: seekVerb},
	{Name: "trigger ledger", Build: ledgerVerb},
	{Name: "trigger adapters", Build: adaptersVerb},
	{Name: "publish run", Build: publishRunVerb},
	{Name: "publish validate", Build: publishValidateVerb},
}
