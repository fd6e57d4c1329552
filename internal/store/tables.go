package store

import "slices"

// Table is the name of a table.
type Table string

// The tables of a thread. This is the one list of them; in a database of package
// bolt each is a bucket of that name.
const (
	Meta          Table = "meta"         // format, state, and what is known of series and lines
	Events        Table = "events"       // the events
	Pieces        Table = "pieces"       // large contents
	Series        Table = "series"       // source, type and subtype → series id
	SeriesByID    Table = "series_by_id" // and back
	Columns       Table = "columns"      // blocks of series ids
	Types         Table = "types"        // type and subtype → id
	TypeBlocks    Table = "type_blocks"  // blocks of these ids
	Receipts      Table = "receipts"     // what became of pending writes of other processes
	Subscriptions Table = "subscriptions"
	Progress      Table = "progress"
	Checked       Table = "checked"
	Deliveries    Table = "deliveries"
	Dead          Table = "dead"
	Retries       Table = "retries"
	Dedupe        Table = "dedupe"
	DedupeExpiry  Table = "dedupe_expiry"
	Scheduled     Table = "scheduled"
	Schedules     Table = "schedules"
	Settled       Table = "settled"
	Attempts      Table = "attempts"
	LimitsTable   Table = "limits"
)

// FirstTables are those that package bolt makes with every database. The others come with
// their first use.
var FirstTables = []Table{Meta, Events, Series, SeriesByID, Columns, Subscriptions, Progress, Types, TypeBlocks}

// laterTables come with their first use.
var laterTables = []Table{Pieces, Receipts, Checked, Deliveries, Dead, Retries, Dedupe, DedupeExpiry, Scheduled, Schedules, Settled, Attempts, LimitsTable}

// Reserved reports whether a table of that name is the thread's own, or the name is
// none.
func Reserved(t Table) bool { return t == "" || Essential(t) || slices.Contains(laterTables, t) }

// Essential reports whether every thread has that table.
func Essential(t Table) bool { return slices.Contains(FirstTables, t) }
