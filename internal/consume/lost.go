package consume

// lostTurn ends a delivery when the consumer is another process's.
type lostTurn struct{ lost <-chan struct{} }

func (t lostTurn) Environment() []string  { return nil }
func (t lostTurn) Abort() <-chan struct{} { return t.lost }
func (t lostTurn) Done(string)            {}

// until is turn, or where nobody is asked for one, what lasts as long as the consumer is
// this process's.
func (r *run) until(turn Turn) Turn {
	if turn == nil && r.Lost != nil {
		return lostTurn{r.Lost}
	}
	return turn
}

func (r *run) isLost() bool {
	select {
	case <-r.Lost: // never, when it is nil
		return true
	default:
		return false
	}
}
