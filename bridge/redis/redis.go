// Package redis is the adapter for a stream of Redis. It is not built yet: only its name is known,
// so that a file that names it is told so.
package redis

import "thread/bridge/adapter"

func init() { adapter.Register(adapter.Spec{Type: "redis", Summary: "a stream of Redis"}) }
