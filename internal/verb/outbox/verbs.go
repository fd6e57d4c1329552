// Package outbox has the verbs of thread-outbox: outbox, notifications and dm.
package outbox

import (
	"encoding/json"

	"thread/internal/cli"
)

// Verbs are the verbs of thread-outbox.
var Verbs = []cli.Entry{
	{Name: "outbox add", Build: addVerb},
	{Name: "outbox relay", Build: relayVerb},
	{Name: "outbox list", Build: listVerb},
	{Name: "outbox retry", Build: retryVerb},
	{Name: "outbox stats", Build: statsVerb},
	{Name: "outbox config", Build: configVerb},
	{Name: "notifications", Build: notificationsVerb},
	{Name: "dm", Build: dmVerb},
}

// printJSON prints v as one line of JSON.
func printJSON(a *cli.App, v any) error {
	enc := json.NewEncoder(&a.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
