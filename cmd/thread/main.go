// Command thread is an event queue that lives in a directory.
//
// Verbs that need SQLite or a server are programs of their own, thread-sqlite and
// thread-serve, which it runs in its place. With the build tag bundled they are
// linked in, for those who must carry a single file.
package main

import "thread/internal/cli"

func main() { cli.Main("thread", verbs...) }
