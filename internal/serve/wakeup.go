package serve

import "thread/internal/dispatch"

// wakeUp is what the wake-ups since the last pass ask for, taken together.
type wakeUp struct {
	set    bool   // there was one
	push   bool   // a push, or thread dispatch: what was stopped starts afresh,
	except string // but not this consumer, whose own handler made the only pushes
}

// wakeNew asks for a pass after which only what is new runs.
var wakeNew = wakeUp{set: true}

func wakeUpOf(p dispatch.Ping) wakeUp {
	return wakeUp{set: true, push: p.Push, except: p.Author}
}

// add merges another wake-up.
func (w *wakeUp) add(more wakeUp) {
	switch {
	case w.push && more.push && w.except != more.except:
		w.except = ""
	case more.push && !w.push:
		w.push, w.except = true, more.except
	}
	w.set = w.set || more.set
}

// fresh reports whether consumer runs only for events that came since it was
// stopped.
func (w *wakeUp) fresh(consumer string) bool {
	return !w.push || w.except != "" && w.except == consumer
}
