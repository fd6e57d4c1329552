// Package verb has the verbs of thread-bridge.
package verb

import "thread/internal/cli"

// Verbs are the verbs of thread-bridge.
var Verbs = []cli.Entry{}
