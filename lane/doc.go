// Package lane keeps order inside a session and bounds how much runs at once,
// and it knows which run of a session can be steered.
//
// A [Queue] runs tasks in lanes. A task submitted on the path [Session](key, name)
// waits twice: first in its session lane, which lets one task through at a time and
// so keeps the order of one conversation, then, at the head of that, in a global
// lane, whose limit bounds how many tasks of all sessions run together. A task on the
// path [Lane](name) waits in that lane only.
//
//	q := lane.New(logger)
//	reply, err := lane.Do(ctx, q, lane.Session("user-abc", lane.Main),
//		func(ctx context.Context) (string, error) { return answer(ctx, question) })
//
// A [Registry] holds the active run of each session: it delivers a message into
// a run that streams, aborts runs, and waits for their end.
//
// What holds, whatever the interleaving:
//
//  1. Tasks of one session start in the order in which they were submitted, and
//     none starts before the one before it has ended, been refused or been
//     disowned by [Queue.Reset].
//  2. A lane never starts a task while as many tasks of the present generation
//     as its limit allows are active in it.
//  3. Every submitted task ends exactly once: with what its function returned,
//     with a [*PanicError], with [ErrGoexit], or, never having started, with a
//     [*RefusedError].
//  4. A waiting task costs memory only: no goroutine and no timer of its own. A
//     goroutine exists for as long as a task runs.
//
// A task that waits for a task in a lane whose slots are all taken by itself and
// its like waits for ever. In its own session lane this is detected
// ([ErrReentrant]); in global lanes it is for the caller to avoid, by giving
// nested work a lane of its own, as [Subagent] is.
//
// The rules named L-01 to L-24 in comments are those of docs/spec/lanes.md. The
// package's API is not promised to library users: it may change with any release.
package lane
