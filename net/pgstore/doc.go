// Package pgstore is a second store, a thread in PostgreSQL, and for the tests alone: it
// proves that the seam of thread/internal/store asks nothing that only a directory can
// do. There is no code in it but tests; no program links it.
//
// A thread is a row. What it has is in three tables beside that: events, series, and the
// ordered records of everything else.
package pgstore
