package consume

type turned struct {
	held
	err error
}

// handOut gives what is in reserve to free slots.
func (p *parallel) handOut() {
	for len(p.free) > 0 && len(p.reserve) > 0 && !p.ending {
		d := p.reserve[0]
		p.reserve = p.reserve[1:]
		h := held{slot: p.take(), d: d}
		if p.Turns != nil {
			go p.await(h)
			continue
		}
		p.enter(h)
	}
}

// enter begins a delivery that was in reserve.
func (p *parallel) enter(h held) {
	p.begun = append(p.begun, h.d.Number())
	if h.d.Careful {
		p.careful[h.d.Number()] = h
		return
	}
	p.start(h)
}

// await waits for the turn of a delivery. Until it has come the delivery is in reserve:
// one that is killed while it waits was no attempt.
func (p *parallel) await(h held) {
	var key *string
	if p.Key != "" {
		key = &h.d.Key
	}
	var err error
	h.turn, err = p.Turns(p.waits, h.slot, key, h.d.Events[0].ID)
	p.turned <- turned{h, err}
}

// hasTurn begins a delivery whose turn has come, or takes it back.
func (p *parallel) hasTurn(t turned) {
	if t.err == nil && !p.ending {
		p.enter(t.held)
		return
	}
	if t.err == nil {
		t.turn.Done("")
	}
	if !p.ending {
		p.finish(nil)
	}
	p.free, p.busy = append(p.free, t.slot), p.busy-1
	p.reserve = append(p.reserve, t.d)
}

func (p *parallel) take() int {
	slot := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.busy++
	return slot
}
