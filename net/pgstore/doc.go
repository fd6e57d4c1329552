// Package pgstore keeps threads in PostgreSQL. It is a store of thread/internal/store,
// next to the directory of package bolt, and for threads that many hosts use.
//
// All threads of a database are in one schema (schema.sql). A thread is a row; what it
// has is in tables next to that: events, series, and the ordered records of everything
// else.
//
// # Order
//
// Every write transaction locks the thread's row first, and reads the newest id in the
// statement after that, which sees what was committed while it waited. So ids are dense
// and in the order of commits: a reader that has seen id 7 will never see a 6 appear.
// A sequence would not do that.
//
// # Outcomes
//
// A connection that breaks at COMMIT leaves the outcome open. Every write transaction
// stores a random number; after that break another one takes the same lock, looks
// whether the number is there, and commits something itself, so that the answer does
// not come from a server that is not the primary any more. When the number is missing,
// nothing was stored and the transaction is run again. When no answer can be had in 10
// s, or when COMMIT came with a warning, as it does where the standby has not confirmed,
// the error is store.ErrUnknownOutcome.
//
// # Turns
//
// A process that works for a consumer has its turn: a row with a number that grows with
// every holder, and a time by the server's clock. The clock only decides when another
// process may take the turn. Every transaction that the holder writes compares the
// number, under the lock that the next holder must take as well: a holder that was
// stopped, or cut off, stores nothing once the turn is another's.
//
// Nothing in here needs the state of a session, so that a pooler of transactions may
// stand in between; behind one no notices come, who waits looks every 5 s, and no statement
// is prepared.
package pgstore
