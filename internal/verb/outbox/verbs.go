// Package outbox has the verbs of thread-outbox: outbox, notifications and dm.
package outbox

import "thread/internal/cli"

// Verbs are the verbs of thread-outbox.
var Verbs = []cli.Entry{
	{Name: "outbox add", Verb: addVerb},
	{Name: "outbox push", Verb: pushVerb},
	{Name: "outbox relay", Verb: relayVerb},
	{Name: "outbox list", Verb: listVerb},
	{Name: "outbox retry", Verb: retryVerb},
	{Name: "outbox stats", Verb: statsVerb},
	{Name: "outbox prune", Verb: pruneVerb},
	{Name: "outbox config", Verb: configVerb},
	{Name: "outbox take", Program: "thread-sqlite", Summary: "Take messages out of an application's own outbox table"},
	{Name: "notifications", Verb: notificationsVerb},
	{Name: "dm", Verb: dmVerb},
}
