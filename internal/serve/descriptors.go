package serve

// descriptors says what the file descriptors that this process may have are for:
// who takes only its own share fails for no lack of them.
type descriptors struct {
	runs    int // handlers at once
	retries int // whose right is held at once
	threads int // kept open at once
	conns   int // connections over HTTP that are not streams
	streams int
}

// What one of each needs at most.
const (
	ownDescriptors  = 16 + 3*maxPasses // this process itself, and its passes
	runDescriptors  = 16               // locks, pipes, logs; some of them only while the handler is started
	openDescriptors = 3                // a lock and two sockets
)

// share divides limit descriptors: half of them for handlers.
func share(limit int) descriptors {
	rest := max(limit-ownDescriptors, 0)
	d := descriptors{
		runs:    max(rest/2/runDescriptors, 1),
		conns:   min(max(rest/16, 2), maxConns),
		streams: min(max(rest/16, 2), maxStreams),
	}
	rest = max(rest-d.runs*runDescriptors-d.conns-d.streams, 0)
	d.retries = rest / 3
	d.threads = (rest - d.retries) / openDescriptors
	return d
}
