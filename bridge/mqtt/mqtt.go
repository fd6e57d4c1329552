// Package mqtt is the adapter for topics of MQTT 5. It is not built yet: only its name is known,
// so that a file that names it is told so.
package mqtt

import "thread/bridge/adapter"

func init() { adapter.Register(adapter.Spec{Type: "mqtt", Summary: "topics of MQTT 5"}) }
