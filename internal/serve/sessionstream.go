package serve

import (
	"context"
	"strings"
	"time"
)

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// ofSession is the filter of what a session's rows have.
func ofSession(session, where string) string {
	of := "source = 'session:" + strings.ReplaceAll(session, "'", "''") + "'"
	if where == "" {
		return of
	}
	return of + " AND (" + where + "\n)"
}
