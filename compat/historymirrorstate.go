package compat

import (
	"context"
	"database/sql"
)

// MirrorState is a row of mirror_state: how far the copy of a workspace is.
type MirrorState struct {
	WorkspaceID  string
	LastEventID  int64
	LastSyncedAt string
	Status       string
	ErrorMessage sql.NullString
}

// MirrorStates reads mirror_state of the copy of a history at path, and changes nothing.
// The errors are the errors of the file, and ErrNotSQLite.
func MirrorStates(ctx context.Context, path string) (list []MirrorState, err error) {
	if !Available {
		return nil, ErrNoSQLite
	}
	s, err := openSource(ctx, path)
	if err != nil {
		return nil, err
	}
	defer s.close()
	rows, err := s.conn.QueryContext(ctx, `SELECT workspace_id, last_event_id, coalesce(last_synced_at, ''), coalesce(status, ''), error_message FROM mirror_state ORDER BY workspace_id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m MirrorState
		if err := rows.Scan(&m.WorkspaceID, &m.LastEventID, &m.LastSyncedAt, &m.Status, &m.ErrorMessage); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, rows.Err()
}
