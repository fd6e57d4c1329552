package serve

import "time"

// noticeDelay is how long after the first notice a pass is made. A push that sends a
// ping has been seen by then, and a burst of writes costs one pass.
const noticeDelay = 50 * time.Millisecond

func (n *notices) close() {
	if n.dirs != nil {
		n.dirs.Close()
	}
}

func (n *notices) warn(err error) {
	n.mu.Lock()
	told := n.warned
	n.warned = true
	n.mu.Unlock()
	if !told {
		n.s.log.Warn("no file notices, at least for some threads", "error", err)
	}
}

// add watches a thread directory or a root. It may be called again.
func (n *notices) add(dir string) {
	if n.dirs != nil {
		if err := n.dirs.Add(dir); err != nil {
			n.warn(err)
		}
	}
}

func (n *notices) remove(dir string) {
	if n.dirs != nil {
		n.dirs.Remove(dir)
	}
}
