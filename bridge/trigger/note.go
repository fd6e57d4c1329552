package trigger

import (
	"context"
	"errors"
	"fmt"

	"thread/engine"
)

// ErrNotHandled is returned by NoteModelCalls for an event that is not being handled.
var ErrNotHandled = errors.New("the event is not being handled")

// NoteModelCalls adds to the calls of models in the ledger's row of an event that a
// handler of the trigger of that name works on. It returns ErrNotHandled when the event
// is not one that the trigger waits for, or has no row.
func NoteModelCalls(ctx context.Context, t *engine.Thread, name string, event, calls int64) error {
	return t.Update(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		var o openRecord
		c := Config{Name: name}
		found, err := getJSON(r, c.openKey(event), &o)
		if err != nil {
			return err
		}
		if !found || o.Row == 0 {
			return fmt.Errorf("event %d of trigger %s: %w", event, name, ErrNotHandled)
		}
		book := &ledger{r: r, prefix: key(kindLedger, name)}
		return book.update(o.Row, func(row *Row) {
			if row.ModelCalls != nil {
				calls += *row.ModelCalls
			}
			row.ModelCalls = &calls
		})
	})
}
