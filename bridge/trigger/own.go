package trigger

import (
	"context"
	"errors"
	"fmt"

	"thread/engine"
)

// ErrForeignConsumer is wrapped by the errors of subscribing a consumer that this
// trigger or publisher has not subscribed itself.
var ErrForeignConsumer = errors.New("another owner subscribed it")

// SubscribeHandler subscribes the consumer of a trigger, or gives it the handler of s
// and keeps its filter. A record holds the handler that the trigger gave its consumer:
// for a consumer with any other handler SubscribeHandler returns ErrForeignConsumer.
func SubscribeHandler(ctx context.Context, t *engine.Thread, name string, s engine.Subscription) error {
	return t.Update(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		at := key(kindOwned, name, s.Consumer)
		owned, err := get(r, at)
		if err != nil {
			return err
		}
		err = subscribeOwn(tx, s, func(old *engine.Subscription) bool {
			return owned != nil && old.Handler == string(owned) || old.Handler == s.Handler && old.Where() == s.Where()
		}, func(old *engine.Subscription) { old.Handler = s.Handler })
		if err != nil || string(owned) == s.Handler {
			return err
		}
		return put(r, at, []byte(s.Handler))
	})
}

// subscribePublisher subscribes the consumer of a publisher, paused, or gives it the
// filter of s. It returns ErrForeignConsumer for a consumer that no publisher has
// subscribed.
func subscribePublisher(tx *engine.Tx, s engine.Subscription) error {
	return subscribeOwn(tx, s, func(old *engine.Subscription) bool { return old.Handler == s.Handler },
		func(old *engine.Subscription) { old.Filter, old.Paused = s.Filter, true })
}

// subscribeOwn subscribes a consumer, or changes one that is the caller's own.
func subscribeOwn(tx *engine.Tx, s engine.Subscription, own func(*engine.Subscription) bool, change func(*engine.Subscription)) error {
	var foreign error
	err := tx.Replace(s.Consumer, func(old *engine.Subscription) {
		if !own(old) {
			foreign = fmt.Errorf("consumer '%s' runs %.200q: %w", old.Consumer, old.Handler, ErrForeignConsumer)
			return
		}
		change(old)
	})
	if errors.Is(err, engine.ErrNoSubscription) {
		return tx.Subscribe(s)
	}
	return errors.Join(foreign, err) // either undoes the transaction
}
