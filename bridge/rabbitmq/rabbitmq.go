// Package rabbitmq is the adapter for a queue of RabbitMQ. It is not built yet: only its name is known,
// so that a file that names it is told so.
package rabbitmq

import "thread/bridge/adapter"

func init() { adapter.Register(adapter.Spec{Type: "rabbitmq", Summary: "a queue of RabbitMQ"}) }
