// Package sqs is the adapter for a queue of AWS SQS. It is not built yet: only its name is known,
// so that a file that names it is told so.
package sqs

import "thread/bridge/adapter"

func init() { adapter.Register(adapter.Spec{Type: "sqs", Summary: "a queue of AWS SQS"}) }
