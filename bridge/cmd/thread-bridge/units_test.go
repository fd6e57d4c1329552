package main

import (
	"testing"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// each adapter says what it promises, and does not connect before it is asked.
func TestSpecs(t *testing.T) {
	for _, s := range adapter.All() {
		if s.Source == nil {
			continue // not built yet
		}
		if s.Summary == "" || s.Caps.Promise == "" {
			t.Errorf("%s: %+v", s.Type, s)
		}
		conn := map[string]string{}
		for _, k := range s.Keys {
			if k.Help == "" {
				t.Errorf("%s.%s has no help", s.Type, k.Name)
			}
			if k.Required {
				conn[k.Name] = "127.0.0.1:1"
			}
		}
		src, err := s.Source(&adapter.Settings{Name: "x", Queue: "q", Group: "g", Concurrency: 1, MaxBatch: 1, Keys: s.Keys, Connection: conn})
		if err != nil {
			t.Errorf("%s: %v", s.Type, err)
			continue
		}
		if h := src.Health(t.Context()); h.OK {
			t.Errorf("%s is healthy before Connect", s.Type)
		}
		if err := src.Close(); err != nil {
			t.Errorf("%s: %v", s.Type, err)
		}
		if _, ok := src.(trigger.Keeper); !ok && src.Capabilities().KeepEvery > 0 {
			t.Errorf("%s wants to be kept and cannot be", s.Type)
		}
	}
}
