// Package outbox is a transactional outbox in a thread: [Insert] stores a message in
// the transaction of the caller's own records, and [Relay] later hands it on, at
// least once: a notification for a user, a run of an agent's handler, or both.
// docs/reference/outbox.md is for users, docs/spec/outbox.md has the rules by number.
//
//	err := t.Update(ctx, func(tx *engine.Tx) error {
//		comments, err := tx.Records("comments")
//		…
//		_, err = outbox.Insert(tx, outbox.Message{EventType: outbox.CommentReplied, …})
//		return err
//	})
//
// # Where it lives
//
// A record is an event of the thread: its source is [Source], its type the event
// type, its content the message. Its status is what the engine knows of that event
// for the consumer Consumer: pending is not yet acked, processed is acked, failed is
// a dead letter; the attempts, the error and the wait are the feed's. So thread info,
// dead and why tell of the outbox as of any consumer. What the engine has no place
// for is in tables of records, which change in the same transactions:
//
//	outbox                event id (8 bytes) → row: trace, keys, run
//	outbox_receipts       event id, number from 1 (8 bytes each) → receipt
//	outbox_ids            event_id → event id; kept for ever (O-06)
//	outbox_notifications  'u' user 0 event id → notification; 'i' event id → user
//	outbox_config         "settings" → Settings
package outbox
