package cli

import (
	"context"

	"thread/engine"
	"thread/internal/dispatch"
)

// superviseVerb is the hidden subcommand that dispatch starts to hold a
// consumer's lock while its handler runs.
const superviseVerb = "supervise"

// Wake starts the process that is to run the handlers after a push.
func Wake(ctx context.Context, t *engine.Thread, source string) error {
	return dispatch.Wake(ctx, t, source)
}

// WakeAfterPush is wake for what was pushed.
func WakeAfterPush(ctx context.Context, t *engine.Thread, b engine.Batch) error {
	if !b.Subscribed {
		return dispatch.WakeUnsubscribed(ctx, t, b.LastSource)
	}
	return Wake(ctx, t, b.LastSource)
}

// supervise is the body of the hidden subcommand.
func supervise(ctx context.Context, args []string) error {
	return dispatch.Supervise(ctx, args)
}
