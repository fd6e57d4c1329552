package outbox

import (
	"encoding/json"
	"errors"

	"thread/internal/cli"
	"thread/internal/terminal"
)

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
