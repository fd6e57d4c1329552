// Package verb has the verbs of thread-bridge.
package verb

import "thread/internal/cli"

// Verbs are the verbs of thread-bridge.
var Verbs = []cli.Entry{
	{Name: "trigger run", Verb: runVerb},
	{Name: "trigger validate", Verb: validateVerb},
	{Name: "trigger send", Verb: sendVerb},
	{Name: "trigger status", Verb: statusVerb},
	{Name: "trigger health", Verb: healthVerb},
	{Name: "trigger pause", Verb: pauseVerb},
	{Name: "trigger resume", Verb: resumeVerb},
	{Name: "trigger seek", Verb: seekVerb},
	{Name: "trigger ledger", Verb: ledgerVerb},
	{Name: "trigger note", Verb: noteVerb},
	{Name: "trigger adapters", Verb: adaptersVerb},
	{Name: "publish run", Verb: publishRunVerb},
	{Name: "publish validate", Verb: publishValidateVerb},
	{Name: "publish status", Verb: publishStatusVerb},
	{Name: "publish health", Verb: publishHealthVerb},
}
