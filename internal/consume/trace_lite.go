//go:build lite

package consume

import "thread/engine"

// thread-lite exports no traces.
type (
	tracing struct{}
	traced  struct{}
)

func (*tracing) begin(*engine.Delivery) traced   { return traced{} }
func (traced) environment(env []string) []string { return env }
func (traced) end(*engine.Result)                {}
