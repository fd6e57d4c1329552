package serve

import "sync"

// changes tells the process that waits that something may have changed, whatever it is.
type changes struct {
	mu   sync.Mutex
	news chan struct{} // nil when no process waits
}

// wait returns a channel that is closed with the next change.
func (c *changes) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.news == nil {
		c.news = make(chan struct{})
	}
	return c.news
}

func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.news != nil {
		close(c.news)
		c.news = nil
	}
}
