// Package lane keeps order inside a session and bounds how much runs at once,
// and it knows which run of a session can be steered.
//
// A [Queue] runs tasks in lanes. A task submitted on the path [Session](key, name)
// waits twice. Its session lane lets one task through at a time and so keeps the order
// of one conversation. From the head of that lane it waits in a global lane, whose
// limit bounds how many tasks of all sessions run together. A task on the
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
//  4. A waiting task costs only memory, neither a goroutine nor a timer. A
//     goroutine exists for as long as a task runs.
//
// If all slots of a lane are taken by tasks that wait for tasks in that lane, they
// wait for ever. In a session lane this is detected ([ErrReentrant]). In global
// lanes the caller avoids it by giving nested work a separate lane, as [Subagent] is.
//
// The rules L-01 to L-24 in comments are defined in docs/spec/lanes.md. Library
// users may rely on the API, within semantic versions.
package lane
