// Package dispatch runs the handlers of subscriptions that have unread events,
// and tells a running handler from a dead one. It is internal to this program
// and makes no promise to library users; docs/DISPATCH.md is for them.
//
// # Processes
//
//	push ──► dispatch ──► supervisor ──► sh -c handler
//	                          └──► guard
//
// A dispatch (Run) looks once, starts supervisors and returns. A supervisor
// (Supervise) runs handlers one after the other for as long as it finds
// consumers to run, then ends. Its guard waits for its death and, if that was
// not an orderly end, becomes a supervisor itself; so what one kill -9 cuts off
// needs no further push. Nothing is resident.
//
// # Locks
//
// All are kernel locks on files in run/, <c> being the encoded consumer. Their
// holder is a descriptor, so none outlives the processes that have it.
//
//	<c>.lock      the consumer's turn: held while its handler lives, and for a
//	              moment by who finds out whether it must run
//	<c>.busy      exclusive: a supervisor runs <c> or waits to retry it.
//	              Shared, for a moment: somebody asks
//	<c>.tree      inherited by the handler and what it starts, so held by what
//	              is left of a handler that was killed, or whose supervisor was.
//	              Unlocked and unlinked when the handler exits under supervision:
//	              a daemon that it leaves behind holds nothing
//	slots/<n>     one running handler each, n in [0, MaxHandlers)
//
// They are taken in the order lock, busy, tree, slot; only busy and, by the
// holder of busy, lock and tree are waited for, and their holders are brief.
//
// # Why no event is left behind
//
// A dispatch that comes after an event's commit starts the consumer, or sees one
// of its locks or every slot held. So this must hold, and does: who releases a
// lock or a slot looks again afterwards, at what was committed by then, and
// starts what it finds. Releasing is an explicit unlock: a descriptor that a
// child has just inherited between fork and exec cannot prolong it. The notes in
// <c>.json (see status) are advice. Without them a handler may run once too
// often, never too seldom.
//
// # Why no consumer has two handlers
//
// Who runs a handler holds lock and tree. When the supervisor is killed, lock is
// free but tree is held by the handler until its last process is gone, which
// the successor sees to before it starts the next (evict).
package dispatch
