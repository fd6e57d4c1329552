package engine

// HasSubscriptions reports whether the thread has a subscription at all, so that an
// event may have a handler. It reads no event and no filter.
func (tx *Tx) HasSubscriptions() bool { return tx.hasSubscriptions() }
