package main

import (
	"thread/engine"
	"thread/event"
	"thread/jsonlog"
)

// logPush writes what was pushed into logs/thread.log (contract T-28, T-35). A
// log that cannot be written keeps nobody from pushing.
func (a *app) logPush(batch bool, d event.Draft, b engine.Batch) {
	log := jsonlog.OpenLog(a.dir)
	if batch {
		log.Info("push batch: count=%d last_id=%d", b.Last-b.First+1, b.Last)
		return
	}
	log.Info("push: source=%s type=%s id=%d", d.Source, d.Type, b.Last)
}

// logWarning writes a warning into logs/thread.log as well as on stderr.
func (a *app) logWarning(format string, args ...any) {
	a.warn(format, args...)
	jsonlog.OpenLog(a.dir).Warn("%s", a.warnings[len(a.warnings)-1])
}
