// Package outbox has the verbs of thread-outbox: outbox, notifications and dm.
package outbox

import (
	"encoding/json"
	"errors"

	"thread/internal/cli"
	"thread/internal/terminal"
)

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

// warnUnprinted turns an error of printing into a warning: what it is about is stored,
// and a caller who sees the command fail would do it again.
func warnUnprinted(a *cli.App, err error) {
	if err == nil {
		err = a.Out.Flush()
	}
	if err != nil && !errors.Is(err, terminal.ErrReaderGone) {
		a.Warn("it is done, but could not be printed: %v", err)
	}
}

// printJSON prints v as one line of JSON.
func printJSON(a *cli.App, v any) error {
	enc := json.NewEncoder(&a.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
