package compat

import (
	"context"
	"errors"
	"fmt"

	"thread/history"
	"thread/internal/historymirror"
)

// importRows is how many rows are written in one commit.
const importRows = 500

// ImportHistory takes the rows of a history.db of OpenHarness into h, in the order in
// which they were made: one with a column for each field, as its mirror wrote them, or one
// with the rows as JSON in a column payload. Rows of one workspace become the rows of the
// directory's own, whatever its id was; rows of several keep theirs. A row that is there
// already, by its id, stays as it is, so that an import that was interrupted is taken up by
// the next one.
//
// It returns ErrNotHistory for another file, and ErrBadRows, before anything is written,
// when rows have no place in a history, unless o.SkipBadRows leaves them out; the report
// lists them.
func ImportHistory(ctx context.Context, h *history.History, path string, o HistoryImportOptions) (r HistoryReport, err error) {
	s, err := openSource(ctx, path)
	if errors.Is(err, ErrNotSQLite) {
		return r, fmt.Errorf("%w: %s is not a SQLite file", ErrNotHistory, path)
	}
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	i := &historyImport{s: s, path: path, report: &r, ids: map[history.Entity]map[string]bool{}, parents: map[string]string{}, steps: map[string]bool{}}
	if err := i.tables(ctx); err != nil {
		return r, err
	}
	if err := i.look(ctx); err != nil {
		return r, err
	}
	if r.FaultCount > 0 && !o.SkipBadRows {
		return r, ErrBadRows
	}
	return r, i.write(ctx, h, o.Progress)
}

// importOrder is the order of entities in which what a row names comes before it.
var importOrder = []history.Entity{history.Session, history.RunEntity, history.Message, history.RunStep, history.ToolCall, history.HookRun, history.ActionRun, history.Artifact}

type historyImport struct {
	s      *source
	path   string
	report *HistoryReport

	names      map[history.Entity]string // of the tables that there are
	ids        map[history.Entity]map[string]bool
	parents    map[string]string // of the runs that have one
	steps      map[string]bool   // run and seq
	workspaces map[string]bool
	rows       int64
}

// tables finds out which tables there are.
func (i *historyImport) tables(ctx context.Context) error {
	i.names, i.workspaces = map[history.Entity]string{}, map[string]bool{}
	for _, e := range importOrder {
		for _, name := range []string{historymirror.TableOf(historymirror.Tables, e).Name, string(e)} {
			var n int
			if err := i.s.conn.QueryRowContext(ctx, "SELECT count(*) FROM pragma_table_info(?) WHERE name = 'id'", name).Scan(&n); err != nil {
				return err
			}
			if n > 0 && i.names[e] == "" {
				i.names[e] = name
			}
		}
	}
	if i.names[history.Session] == "" && i.names[history.RunEntity] == "" {
		return fmt.Errorf("%w: %s has neither a table sessions nor a table runs", ErrNotHistory, i.path)
	}
	return nil
}

// look reads all rows once, to find those that have no place in a history.
func (i *historyImport) look(ctx context.Context) error {
	for _, e := range importOrder {
		i.ids[e] = map[string]bool{}
		err := i.each(ctx, e, func(row history.Row, bad error) error {
			if bad == nil {
				bad = i.check(row)
			}
			if bad != nil {
				i.report.fault(i.names[e], fmt.Sprintf("%q", history.IDOf(row)), "%v", bad)
				return nil
			}
			i.ids[e][history.IDOf(row)] = true
			i.rows++
			switch r := row.(type) {
			case *history.SessionRow:
				i.workspaces[r.WorkspaceID] = true
			case *history.RunRow:
				i.workspaces[r.WorkspaceID] = true
				if r.ParentRunID != "" {
					i.parents[r.ID] = r.ParentRunID
				}
			case *history.StepRow:
				i.steps[fmt.Sprint(r.Seq, " ", r.RunID)] = true
			}
			return nil
		})
		if err != nil {
			return err
		}
		if e == history.RunEntity {
			i.checkParents()
		}
	}
	return nil
}

// check says why a row has no place in a history.
func (i *historyImport) check(row history.Row) error {
	if err := history.Check(row); err != nil {
		return err
	}
	if i.ids[row.Entity()][history.IDOf(row)] {
		return errors.New("another row has its id")
	}
	there := func(e history.Entity, id string) error {
		if id == "" || i.ids[e][id] {
			return nil
		}
		return fmt.Errorf("there is no %s %q", e, id)
	}
	switch r := row.(type) {
	case *history.MessageRow:
		return errors.Join(there(history.Session, r.SessionID), there(history.RunEntity, r.RunID))
	case *history.RunRow:
		return there(history.Session, r.SessionID)
	case *history.StepRow:
		if i.steps[fmt.Sprint(r.Seq, " ", r.RunID)] {
			return fmt.Errorf("run %q has another step %d", r.RunID, r.Seq)
		}
		return there(history.RunEntity, r.RunID)
	case *history.ToolCallRow:
		return errors.Join(there(history.RunEntity, r.RunID), there(history.RunStep, r.StepID))
	case *history.HookRunRow:
		return there(history.RunEntity, r.RunID)
	case *history.ActionRunRow:
		return there(history.RunEntity, r.RunID)
	case *history.ArtifactRow:
		return there(history.RunEntity, r.RunID)
	}
	return nil
}

// checkParents takes out the runs whose parents are not there, or come back to them.
func (i *historyImport) checkParents() {
	for again := true; again; {
		again = false
		for id, parent := range i.parents {
			why := ""
			if !i.ids[history.RunEntity][parent] {
				why = fmt.Sprintf("there is no run %q", parent)
			}
			for at, n := parent, 0; why == "" && at != ""; at, n = i.parents[at], n+1 {
				if n > len(i.parents) {
					why = "it is a parent of itself"
				}
			}
			if why == "" {
				continue
			}
			i.report.fault(i.names[history.RunEntity], fmt.Sprintf("%q", id), "%s", why)
			delete(i.ids[history.RunEntity], id)
			delete(i.parents, id)
			i.rows--
			again = true
		}
	}
}

// write reads the rows again and stores those that are good.
func (i *historyImport) write(ctx context.Context, h *history.History, progress Progress) error {
	var batch []history.Row
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		imported, err := h.PutNew(ctx, batch)
		if err != nil {
			return err
		}
		i.report.Imported += imported
		i.report.Already += int64(len(batch)) - imported
		if batch = batch[:0]; progress != nil {
			progress(i.report.Imported+i.report.Already, i.rows)
		}
		return nil
	}
	written := map[string]bool{} // runs
	waiting := map[string][]*history.RunRow{}
	var add func(row history.Row) error
	add = func(row history.Row) error {
		run, isRun := row.(*history.RunRow)
		if isRun && run.ParentRunID != "" && !written[run.ParentRunID] {
			waiting[run.ParentRunID] = append(waiting[run.ParentRunID], run)
			return nil
		}
		batch = append(batch, row)
		if len(batch) == importRows {
			if err := flush(); err != nil {
				return err
			}
		}
		if !isRun {
			return nil
		}
		written[run.ID] = true
		for _, child := range waiting[run.ID] {
			if err := add(child); err != nil {
				return err
			}
		}
		delete(waiting, run.ID)
		return nil
	}
	for _, e := range importOrder {
		good := i.ids[e]
		err := i.each(ctx, e, func(row history.Row, bad error) error {
			id := history.IDOf(row)
			if bad != nil || !good[id] || history.Check(row) != nil {
				return nil
			}
			delete(good, id) // a second one has no place
			i.bind(row)
			return add(row)
		})
		if err != nil {
			return err
		}
	}
	return flush()
}

// bind makes the rows of the only workspace the rows of the directory's own.
func (i *historyImport) bind(row history.Row) {
	if len(i.workspaces) > 1 {
		return
	}
	switch r := row.(type) {
	case *history.SessionRow:
		r.WorkspaceID = ""
	case *history.RunRow:
		r.WorkspaceID = ""
	}
}

// each gives the rows of an entity in the order in which they were made, and why one of
// them cannot be read.
func (i *historyImport) each(ctx context.Context, e history.Entity, fn func(row history.Row, bad error) error) error {
	name := i.names[e]
	if name == "" {
		return nil
	}
	rows, err := i.s.conn.QueryContext(ctx, "SELECT * FROM "+name+" ORDER BY "+i.order(ctx, name)+"rowid")
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for j := range values {
		into[j] = &values[j]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		row, bad := rowFrom(e, columns, values)
		if err := fn(row, bad); err != nil {
			return err
		}
	}
	return rows.Err()
}

// order returns the columns of the table that say when a row was made.
func (i *historyImport) order(ctx context.Context, table string) string {
	order := ""
	for _, column := range []string{"created_at", "started_at", "seq"} {
		var n int
		err := i.s.conn.QueryRowContext(ctx, "SELECT count(*) FROM pragma_table_info(?) WHERE name = ?", table, column).Scan(&n)
		if err == nil && n == 1 && order == "" {
			order = column + ", "
		}
	}
	return order
}
