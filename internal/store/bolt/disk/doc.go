// Package disk is what lies in events.db, and reads it without bbolt. The format is
// described in format.go, group.go, pieces.go, logstart.go, and for series and columns
// in package index; the records of consumers, deliveries and schedules in package store.
//
// # Words
//
//	event         what was pushed: an id, a time, source, type, subtype, content
//	head          the newest id that is visible
//	group         an entry of bucket events: several events; two groups are a pair
//	piece         a part of a large content, in bucket pieces
//	series        a distinct triple of source, type and subtype, and its id
//	block         the series ids of 1024 events, an entry of bucket columns
//	tail          the events behind the last block
//	record        a key and a value, which ends in a checksum of both
//	line          an event as JSON in events*.jsonl
//	meta page     one of the two pages that say where bbolt's trees begin
//	pending write drafts that another process may commit, a file in run/.offers
//	receipt       what became of it
package disk
