package verb

import (
	"context"

	"thread/engine"
	"thread/internal/fsck"
	"thread/net/pgstore"
)

// Check is for core.SetCheck.
func Check(ctx context.Context, t *engine.Thread) (*fsck.Report, error) {
	return fsck.CheckStore(ctx, t, pgstore.Check)
}
