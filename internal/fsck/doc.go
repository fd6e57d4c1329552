// Package fsck checks and repairs thread directories: the pages of the database, the
// records in them, and the lines of events*.jsonl. It reads pages with package disk,
// not with bbolt, which trusts them.
package fsck
