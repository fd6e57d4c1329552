// Package dispatch runs the handlers of subscriptions that have unread events,
// and tells a running handler from a dead one. It is internal to this program
// and makes no promise to library users; docs/reference/dispatch.md is for them.
//
// # Processes
//
//	push ──► supervisor ──► sh -c handler
//	             └──► standby
//
// A push starts a supervisor (Supervise), which looks and ends, unless something is
// due. It runs handlers, each in a separate goroutine, for as long as it finds
// consumers to run. Its standby waits for its death and, if that was not an orderly end,
// becomes a supervisor itself; so what one kill -9 cuts off needs no further push.
// A handler that runs is adopted. The standby has been given the end of the pipe that
// the handler prints into, or the handler would die of its next line. Nothing is
// resident. A dispatch (Run) starts a supervisor and waits until that has handed over.
//
// The steps of all this are a model, model/dispatch.pml; "model: NAME" in the code
// marks where they are.
//
// # Locks
//
// All are kernel locks on files in run/, <c> being the encoded consumer. Their
// holder is a descriptor, so none outlives the processes that have it.
//
//	<c>.lock      the handler lock: held while the handler lives, and for a moment
//	              by who finds out whether it must run
//	<c>.busy      the supervisor lock. Exclusive: a supervisor runs <c> or waits to
//	              retry it. Shared, for a moment: another process asks
//	<c>.tree      the tree lock: inherited by the handler and what it starts, so
//	              held by what is left of a handler that was killed, or whose
//	              supervisor was. Unlocked and unlinked when the handler exits
//	              under supervision: a daemon that it leaves behind holds nothing
//	<c>.turn      the work lock: held by the process that has the ConsumerLock, and
//	              inherited by its commands. In a handler it names the run, and whether
//	              the ConsumerLock was released, which unlocks it: what holds it, or
//	              has not released it, when the handler exits did not end in order
//	slots/<n>     one running handler each, n in [0, MaxHandlers)
//	slots/<l>.<n> a place in the lane <l>, encoded: one running handler each of a
//	              subscription that names the lane, n in [0, its limit). Inherited
//	              by the handler as the tree lock is. It names the consumer
//	.timer.lock   the process that waits for the next delayed event (timer.go)
//
// And one that is not in run/, which may be deleted while a handler runs:
//
//	logs/handlers/<c>.run   the record of a run, held together with <c>.lock
//
// They are taken in the order handler lock, record, supervisor lock, tree lock, place, slot.
// Only the supervisor lock and, by its holder, handler lock and tree lock are waited
// for, and their holders are brief.
//
// # Why no event is left behind
//
// A dispatch that comes after an event's commit starts the consumer, or sees one
// of its locks, or every slot or every place in its lane held. So this must hold, and does: who releases a
// lock, a slot or a place looks again afterwards, at what was committed by then, and
// starts what it finds. Releasing is an explicit unlock: a descriptor that a
// child has just inherited between fork and exec cannot prolong it. The notes in
// <c>.json (see status) are advice. Without them a handler may run once too
// often, never too seldom.
//
// # Why no consumer has two handlers
//
// Who runs a handler holds handler lock, record and tree lock. When run/ is deleted, it
// holds the record's still. When the supervisor is killed, the record tells of a run
// that no process supervises, and the tree lock is held by the handler until its last process is
// gone: the successor waits for the handler's end, and ends what it has left (evict),
// before it starts the next.
package dispatch
