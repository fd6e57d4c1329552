// Command thread is an event queue that lives in a directory.
//
// Verbs that need SQLite, a server or an outbox are separate programs,
// thread-sqlite, thread-serve and thread-outbox, which it runs in its place. With the build tag bundled they are
// linked in, for those who must carry a single file.
package main

import "thread/internal/cli"

func main() { cli.Main("thread", verbs...) }
