package serve

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// acceptPause is the time between attempts while the process has no descriptor
// left, which nothing tells of.
const acceptPause = 100 * time.Millisecond

// accept passes the connections of l to handle, each in a separate goroutine, at
// most that many at once, until l is closed. As many again are passed to refuse, to be
// told so, and those beyond are closed. Who calls keep does not count any more.
func accept(l net.Listener, most int64, handle, refuse func(conn net.Conn, keep func())) {
	var active atomic.Int64
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		do, n := handle, active.Add(1)
		if n > most {
			do = refuse
		}
		go func() {
			done := sync.OnceFunc(func() { active.Add(-1) })
			defer done()
			defer conn.Close()
			if n <= 2*most {
				do(conn, done)
			}
		}()
	}
}
