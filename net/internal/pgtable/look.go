package pgtable

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"thread/internal/apptable"
)

// column is one that is read.
type column struct {
	name string // as PostgreSQL has it
	kind string // the name of its type in pg_catalog, that below a domain
}

// look finds out what the table is. A name without a schema is looked for where the role
// has it. From here on the schema is said each time: what others make in a schema before
// it changes nothing.
func (t *Table) look(ctx context.Context) error {
	rows, err := t.query(ctx, `SELECT c.oid::pg_catalog.text, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, c.relkind::pg_catalog.text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = pg_catalog.to_regclass($1)`, nil, t.given)
	if err != nil {
		return err
	}
	if len(rows) == 0 || !slices.Contains([]string{"r", "p"}, string(rows[0][3])) {
		return fmt.Errorf("%w: the database has no table %s that this role sees", apptable.ErrNoTable, t.given)
	}
	oid := string(rows[0][0])
	t.name = quoted(string(rows[0][1])) + "." + quoted(string(rows[0][2]))
	t.columns, t.key, t.problem = nil, nil, ""
	rows, err = t.query(ctx, `SELECT a.attname::pg_catalog.text, b.typname::pg_catalog.text, b.typcategory::pg_catalog.text,
	pg_catalog.format_type(a.atttypid, a.atttypmod), coalesce(a.attnum = ALL (i.indkey), false),
	pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT'), pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'UPDATE')
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
	JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN y.typtype = 'd' THEN y.typbasetype ELSE y.oid END
	LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = $1::pg_catalog.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, nil, oid)
	if err != nil {
		return err
	}
	yes := func(b []byte) bool { return string(b) == "t" }
	for _, row := range rows {
		c, key := column{string(row[0]), string(row[1])}, yes(row[4])
		lower := strings.ToLower(c.name)
		if c.name == "status" || c.name == "error" {
			if !yes(row[6]) {
				return fmt.Errorf("%w: it may not UPDATE the column %s of %s", ErrRights, c.name, t.name)
			}
			if c.name == "error" && string(row[2]) == "S" {
				t.problem = string(row[3])
			}
		}
		if !key && !slices.Contains(t.members, lower) {
			continue
		}
		if !yes(row[5]) {
			return fmt.Errorf("%w: it may not SELECT the column %s of %s", ErrRights, c.name, t.name)
		}
		t.columns = append(t.columns, c)
		if key {
			t.key = &c
		}
	}
	t.by, t.byType = "NULL::pg_catalog.int8", "pg_catalog.int8"
	created := t.column("created_at")
	if created != nil {
		t.by, t.byType = "t."+quoted(created.name), "pg_catalog."+quoted(created.kind)
	}
	t.order = t.by + ", t.ctid, t.tableoid"
	if t.key != nil && slices.Contains([]string{"int2", "int4", "int8", "numeric"}, t.key.kind) {
		t.by, t.byType = "t."+quoted(t.key.name), "pg_catalog."+t.key.kind
		t.order = t.by
	}
	return nil
}

func (t *Table) column(lower string) *column {
	for i := range t.columns {
		if strings.ToLower(t.columns[i].name) == lower {
			return &t.columns[i]
		}
	}
	return nil
}

// format is the form in which the values of a column come: binary where their text would
// depend on how the session is set.
func (c column) format() int16 {
	switch c.kind {
	case "int2", "int4", "int8", "timestamp", "timestamptz", "bytea":
		return 1
	}
	return 0
}

// year2000 is where PostgreSQL's times begin, in microseconds since 1970.
const year2000 = 946_684_800_000_000

var integer = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// value is a value as apptable.Row has it: times are texts, in UTC, as SQLite has them.
func (c column) value(b []byte) any {
	if b == nil {
		return nil
	}
	switch c.kind {
	case "int2":
		return int64(int16(binary.BigEndian.Uint16(b)))
	case "int4":
		return int64(int32(binary.BigEndian.Uint32(b)))
	case "int8":
		return int64(binary.BigEndian.Uint64(b))
	case "numeric":
		if integer.Match(b) {
			return json.Number(b)
		}
	case "timestamp", "timestamptz":
		switch us := int64(binary.BigEndian.Uint64(b)); us {
		case math.MaxInt64, math.MinInt64:
			return "infinity"
		default:
			return time.UnixMicro(us + year2000).UTC().Format(time.RFC3339Nano)
		}
	case "bytea":
		return b
	}
	return string(b)
}
