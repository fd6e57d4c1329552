package dispatch

import "errors"

// ErrServed says that another server has the thread.
var ErrServed = errors.New("another process serves it")

// A ping tells the server of a thread, if there is one, to look for
// handlers to start. It is one datagram to the socket run/.wake:
//
//	kind      1  'p' after a push or by hand: what has unread events runs;
//	             'l' after a release: what was stopped runs only for new events;
//	             's' the schedule has changed
//	consumer     whose handler made the push, empty for none
//
// Who sends it has done its part when the kernel has taken it: the process that
// has the socket looks when it reads it, and when that process is killed first,
// its standby does.
const (
	pingPush     = 'p'
	pingLook     = 'l'
	pingSchedule = 's'
)

// wakeSocket is the name of the socket in run/.
const wakeSocket = ".wake"

// Ping is a received ping.
type Ping struct {
	Push   bool   // a push, or thread dispatch
	Author string // the consumer whose handler made the push, "" for none
}

func parsePing(b []byte) Ping {
	if len(b) == 0 {
		return Ping{}
	}
	return Ping{Push: b[0] == pingPush, Author: string(b[1:])}
}
