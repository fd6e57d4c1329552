// Package serve is the resident process: it waits for pushes to many threads at
// once and runs their handlers through lanes. It is internal to this program and
// makes no promise to library users; docs/reference/serve.md is for them.
//
// Nothing depends on it. Its handlers run under the locks of package dispatch, so
// that next to it, before it and after it one-shot dispatches may be at work. What
// is lost when it is killed is nothing but time: its standby takes over.
//
// # What wakes it
//
//  1. A ping, the datagram that dispatch.Wake sends after a push. This is the way.
//  2. A file notice for events.jsonl, for pushes that send none.
//  3. The sweep, every Options.Sweep: a stat of each database, and a pass where it
//     has changed since the last one began.
//  4. A timer for what is scheduled next.
//
// Each leads to a pass: which consumers have unread events? Passes over one thread
// are made one after the other, and a wake-up during one leads to another.
//
// # The way of a consumer
//
// A consumer that is due is queued in its session lane, inside the global lane of
// its subscription. When its turn comes, package dispatch takes its locks, runs
// its handler once, decides what follows (DESIGN section 6) and releases the
// locks. After each release there is another pass. So no lock is held by what
// waits in a lane, except the one that says that a retry is due.
package serve
