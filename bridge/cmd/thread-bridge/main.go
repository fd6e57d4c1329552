// Command thread-bridge reads queues of brokers into threads and publishes events.
// The program thread runs it.
//
// Every adapter has a build tag. Without any tag all are built in, with -tags edge
// mqtt, jetstream and redis, with -tags bare none; -tags edge,kafka adds one.
package main

import (
	"thread/bridge/internal/verb"
	"thread/internal/cli"
	"thread/net/servers"
)

func main() {
	servers.Use()
	cli.Main("thread-bridge", verb.Verbs)
}
