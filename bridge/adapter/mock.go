package adapter

import "thread/internal/trigger"

func init() {
	Register(Spec{Type: "mock", Summary: "messages in memory, for trying things out", Caps: trigger.MockCaps,
		Source: func(*Settings) (trigger.Source, error) { return trigger.NewMock(), nil }})
}
