package page

import (
	"net/http"
	"slices"
	"time"
)

// keptChanges is how many changes the page of changes shows.
const keptChanges = 100

// Changes are the last of them, the newest first.
type Changes struct {
	Changes []Change `json:"changes"`
}

// note remembers a change, and has it written to the log.
func (p *Page) note(q *http.Request, t Thread, do, what, result string, err error) {
	c := Change{At: time.Now(), From: q.RemoteAddr, Do: do, What: what, Result: result, Failed: err != nil}
	if err != nil {
		c.Result = err.Error()
	}
	if t != nil {
		c.Thread = t.Dir()
		p.summaries.await(c.Thread)
	}
	p.made.mu.Lock()
	p.made.n++
	c.Number = p.made.n
	if p.made.last = append(p.made.last, c); len(p.made.last) > keptChanges {
		p.made.last = p.made.last[1:]
	}
	p.made.mu.Unlock()
	if p.opts.Audit != nil {
		p.opts.Audit(c)
	}
}

// audit is the page of changes.
func (p *Page) audit(*http.Request) (any, error) {
	p.made.mu.Lock()
	defer p.made.mu.Unlock()
	list := slices.Clone(p.made.last)
	slices.Reverse(list)
	return Changes{append([]Change{}, list...)}, nil
}
