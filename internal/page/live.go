package page

import (
	"net/http"
	"time"
)

const (
	liveEvery = 100 * time.Millisecond // at most so often is a page told of changes
	beatEvery = 5 * time.Second
	told      = "data: changed\n\n"
	beats     = "data: beat\n\n"
	liveWrite = 10 * time.Second // for a browser to take what it is told

	retryAfter = "15" // seconds, when there is no place
)

// live tells a browser when something may have changed, by server-sent events, and that
// the server is there. Its pages then ask for what has changed in them.
func (p *Page) live(rw http.ResponseWriter, q *http.Request) {
	release, taken := p.streams.Take(p.sessions.of(q).id)
	switch taken {
	case OwnTaken:
		rw.Header().Set("Retry-After", retryAfter)
		p.refuse(rw, &Error{http.StatusTooManyRequests, "this browser has too many live pages: close some"})
		return
	case AllTaken:
		rw.Header().Set("Retry-After", retryAfter)
		p.refuse(rw, &Error{http.StatusServiceUnavailable, "too many live pages"})
		return
	}
	defer release()
	to := http.NewResponseController(rw)
	rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	text := beats // the browser knows that it is connected
	for {
		changed, counted := p.host.Changed(), p.summaries.changed() // before it is told: a change during it leads to another one
		if err := to.SetWriteDeadline(time.Now().Add(liveWrite)); err != nil {
			return
		}
		if _, err := rw.Write([]byte(text)); err != nil {
			return
		}
		if err := to.Flush(); err != nil {
			return
		}
		if text == told {
			pause := time.NewTimer(liveEvery) // changes meanwhile are told of afterwards
			select {
			case <-pause.C:
			case <-q.Context().Done():
				pause.Stop()
				return
			}
		}
		select {
		case <-changed:
			text = told
		case <-counted:
			text = told
		case <-beat.C:
			text = beats
		case <-q.Context().Done():
			return
		case <-p.host.Done():
			return
		}
	}
}
