package consume

import "thread/engine"

// The slots of parallel, each a goroutine.

type held struct {
	slot int
	d    engine.Delivery
	turn Turn
}

type ended struct {
	d      engine.Delivery
	result engine.Result
	err    error
	slot   int
	free   bool // the slot is: it takes no other one
}

func (p *parallel) start(h held) {
	testPoint("begun")
	if p.slots[h.slot] == nil {
		p.slots[h.slot] = make(chan held, 1)
		go p.work(p.slots[h.slot])
	}
	p.slots[h.slot] <- h
}

func (p *parallel) work(given <-chan held) {
	for h := range given {
		for more := true; more; {
			r, rest, err := p.runner.run(h.slot, &h.d, h.turn)
			if h.turn != nil {
				h.turn.Done(failure(r, err))
			}
			e := ended{h.d, r, err, h.slot, rest == nil}
			if h.d, more = p.report(e); more {
				testPoint("begun")
			}
			if rest != nil {
				rest()
				p.freed <- h.slot
			}
		}
	}
}

// report leaves a result to the goroutine that decides, and returns what the slot does
// next if that is for the slot to take: what waits for its turn, or for being noted
// first, is not.
func (p *parallel) report(e ended) (next engine.Delivery, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.free && e.err == nil && p.Turns == nil && !p.ending && len(p.reserve) > 0 && !p.reserve[0].Careful {
		next, more, e.free = p.reserve[0], true, false
		p.reserve = p.reserve[1:]
		p.begun = append(p.begun, next.Number())
	}
	p.ended = append(p.ended, e)
	// Nothing can be done about a result while a step is under way, or others are
	// waited for that are to share the next one.
	idle := more && p.gather != nil && len(p.reserve) > p.want/2
	if e.err != nil || p.step == nil && !idle {
		select {
		case p.some <- struct{}{}:
		default:
		}
	}
	return next, more
}

func (p *parallel) isFree(slot int) {
	p.free = append(p.free, slot)
	p.busy--
	if len(p.reserve) == 0 {
		p.look = true
	}
}

// failure is what went wrong in a delivery, "" for nothing.
func failure(r engine.Result, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case r.Verdict == engine.Failed || r.Verdict == engine.Rejected:
		return r.Error
	}
	return ""
}
