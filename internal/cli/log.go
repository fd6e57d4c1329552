package cli

import (
	"errors"
	"io/fs"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
	"thread/jsonlog"
)

// LogPush writes what was pushed into logs/thread.log (T-28, T-35). A
// log that cannot be written keeps no process from pushing.
func (a *App) LogPush(batch bool, d event.Draft, b engine.Batch) {
	if IsURL(a.Dir) || jsonlog.Off(a.Dir) {
		return // it has no log, or wants no line of each push
	}
	log := jsonlog.OpenLog(a.Dir)
	var err error
	if batch {
		err = log.Info("push batch: count=%d last_id=%d", b.Last-b.First+1, b.Last)
	} else {
		err = log.Info("push: source=%s type=%s id=%d", d.Source, d.Type, b.Last)
	}
	// A full disk may have space again later; this does not change by itself, and
	// handlers need their logs. A process that may only push is not to repair it.
	if errors.Is(err, fs.ErrPermission) && dispatch.Own(a.Dir) == nil {
		a.NotStarted("push: the event is stored", dispatch.ForeignFile(err))
	}
}

// LogWarningOf is LogWarning for one of many threads, and for the log alone.
func LogWarningOf(dir, format string, args ...any) {
	if !IsURL(dir) {
		jsonlog.OpenLog(dir).Warn(format, args...)
	}
}

// LogInfo writes a line into logs/thread.log. A log that cannot be written keeps no process
// from anything.
func (a *App) LogInfo(line string) {
	if !IsURL(a.Dir) {
		_ = jsonlog.OpenLog(a.Dir).Info("%s", line)
	}
}
