package consume

func (r *run) isLost() bool {
	select {
	case <-r.Lost: // never, when it is nil
		return true
	default:
		return false
	}
}
