package engine

// HasSubscriptions reports whether the thread has a subscription at all, so that an
// event may have a handler. It reads no event and no filter.
func (tx *Tx) HasSubscriptions() bool { return tx.hasSubscriptions() }

// Subscription returns the subscription of a consumer, or [ErrNoSubscription].
func (tx *Tx) Subscription(consumer string) (Subscription, error) {
	s, err := tx.subscription(consumer)
	if err != nil {
		return Subscription{}, err
	}
	return subscriptionOf(s), nil
}
