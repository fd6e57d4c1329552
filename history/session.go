package history

import (
	"context"
	"fmt"
)

// StartSession stores a new session. It returns [ErrExists] when there is one with
// its id.
func (h *History) StartSession(ctx context.Context, s SessionRow) (SessionRow, error) {
	err := h.Update(ctx, func(tx *Tx) error {
		if err := tx.absent(Session, s.ID); err != nil {
			return err
		}
		return tx.Put(&s)
	})
	return s, err
}

func (tx *Tx) absent(e Entity, id string) error {
	if _, ok := tx.versionOf(rowKey(e, id)); ok && id != "" {
		return fmt.Errorf("%w: %s %q", ErrExists, e, id)
	}
	return nil
}

// DeleteSession deletes a session with all that hangs on it, in one commit. It
// returns [ErrActive] when a run of it is active.
func (h *History) DeleteSession(ctx context.Context, id string) error {
	return h.Update(ctx, func(tx *Tx) error {
		if _, ok := tx.versionOf(rowKey(Session, id)); !ok {
			return notFound(Session, id)
		}
		if tx.any(prefix(byRunActive, id)) {
			return fmt.Errorf("%w: %q", ErrActive, id)
		}
		runs := tx.ids(prefix(byRunSession, id))
		for _, of := range []struct {
			entity Entity
			index  byte
		}{{Artifact, byArtifactRun}, {ActionRun, byActionRun}, {HookRun, byHookRun}, {ToolCall, byToolRun}, {RunStep, byStepRun}} {
			for _, run := range runs {
				if err := tx.deleteAll(of.entity, tx.ids(prefix(of.index, run))); err != nil {
					return err
				}
			}
		}
		if err := tx.deleteAll(RunEntity, runs); err != nil {
			return err
		}
		if err := tx.deleteAll(Message, tx.ids(prefix(byMessageSession, id))); err != nil {
			return err
		}
		return tx.Delete(Session, id)
	})
}

// ids returns the ids of the rows in an index, in its order.
func (tx *Tx) ids(p []byte) (ids []string) {
	for rec := range tx.by.Ascend(p, after(p)) {
		ids = append(ids, string(rec.Value))
	}
	return ids
}

func (tx *Tx) deleteAll(e Entity, ids []string) error {
	for _, id := range ids {
		if err := tx.Delete(e, id); err != nil {
			return err
		}
	}
	return nil
}
