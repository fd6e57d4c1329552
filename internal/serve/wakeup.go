package serve

import "thread/internal/dispatch"

// want is what the wake-ups since the last look ask for, taken together.
type want struct {
	look   bool   // there was one
	push   bool   // a push, or thread dispatch: what was stopped starts afresh,
	except string // but not this consumer, whose own handler made the only pushes
}

// glance asks for a look after which only what is new runs.
var glance = want{look: true}

func wantOf(p dispatch.Ping) want {
	return want{look: true, push: p.Push, except: p.Author}
}

// add merges another wake-up.
func (w *want) add(more want) {
	switch {
	case w.push && more.push && w.except != more.except:
		w.except = ""
	case more.push && !w.push:
		w.push, w.except = true, more.except
	}
	w.look = w.look || more.look
}

// fresh reports whether consumer runs only for events that came since it was
// stopped.
func (w *want) fresh(consumer string) bool {
	return !w.push || w.except != "" && w.except == consumer
}
