//go:build noserve

package main

import (
	"context"

	"thread/engine"
	"thread/event"
)

// A build with the tag noserve, for the smallest hosts, has neither the resident
// worker nor schedules: every push starts its handlers by itself. The verbs say
// so.
type noServeCmd struct {
	Rest []string `arg:"" optional:"" passthrough:"" hidden:""`
}

func (*noServeCmd) run(context.Context, *app) error {
	return errNoServe
}

var errNoServe = logic("this build of thread has no resident worker and no schedules", "install the full build, or do without: pushes start their handlers themselves")

func (*pushCmd) pushLater(context.Context, *app, *engine.Thread, event.Draft) error {
	return errNoServe
}

func noServe(name string) *verb {
	return &verb{name: name, summary: "(not in this build)", examples: "thread " + name,
		grammar: func() command { return new(noServeCmd) }}
}

func serveVerb() *verb          { return noServe("serve") }
func runsVerb() *verb           { return noServe("runs") }
func lanesVerb() *verb          { return noServe("lanes") }
func sendVerb() *verb           { return noServe("send") }
func abortVerb() *verb          { return noServe("abort") }
func waitVerb() *verb           { return noServe("wait") }
func scheduleAddVerb() *verb    { return noServe("schedule add") }
func scheduleListVerb() *verb   { return noServe("schedule list") }
func scheduleRemoveVerb() *verb { return noServe("schedule remove") }
