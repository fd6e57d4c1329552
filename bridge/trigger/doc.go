// Package trigger turns messages of a queue into events of a thread (docs/BRIDGE.md
// and docs/spec/triggers.md). It is internal to this program and makes no promise
// to library users.
//
// A message becomes an event in the same transaction that stores where it came
// from: its position in a stream, or its key. Only then is the broker told. So a
// process that is killed at any moment stores every message once: before the
// commit the broker delivers it again, and after it the position or the key is
// known.
//
// A trigger stores; subscriptions deliver. Who runs a handler, how often it is
// tried and what becomes of an event that it cannot handle is the business of
// consumers. A trigger that settles when an event is handled reads that from the
// thread, and so does not care who ran the handler.
//
// The brokers are packages of the module thread/bridge, which implement Source and
// Sink.
package trigger
