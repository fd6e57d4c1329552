// Package bolt keeps a thread in a directory, in one bbolt file: it is the store behind
// every thread that is not elsewhere.
//
// No call keeps the file open across waiting: each opens it, runs one short transaction
// and closes it, because bbolt's lock on an open file excludes all other processes. Long
// reads go in slices. Writes of one process wait in a queue (queue.go); pushes of other
// processes leave pending writes, which the process that holds the lock commits in its own
// transaction (pendingwrite.go). What lies in the file is described in package disk.
package bolt
