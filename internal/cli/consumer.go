package cli

import (
	"context"
	"time"

	"thread/engine"
	"thread/internal/similar"
)

// CheckConsumer refuses an empty consumer, which --consumer "$UNSET" gives.
func CheckConsumer(id string) error {
	if id == "" {
		return UsageError("--consumer is empty", "name the consumer")
	}
	return nil
}

// CheckSubscribed returns the error about a consumer that is not subscribed. A verb that
// found nothing for the consumer calls it: the name may be mistyped.
func (a *App) CheckSubscribed(ctx context.Context, t *engine.Thread, consumer string) error {
	a.Consumer = consumer
	return t.View(ctx, func(tx *engine.Tx) error {
		_, err := tx.Subscription(consumer)
		return err
	})
}

// consumersTime bounds the wait for a busy thread: someone sits at the prompt.
const consumersTime = 500 * time.Millisecond

// subscriptions returns the subscriptions of the thread, none when they cannot be looked up
// soon.
func (a *App) subscriptions() []engine.ConsumerInfo {
	t, err := a.OpenAddress(a.Dir)
	if err != nil {
		return nil
	}
	defer t.Close()
	ctx, cancel := context.WithTimeout(context.Background(), consumersTime)
	defer cancel()
	info, err := t.Info(ctx)
	if err != nil {
		return nil
	}
	return info.Subscriptions
}

// similarConsumer returns the consumer whose name is like the one that was given, ""
// when there is none.
func (a *App) similarConsumer() string {
	var names []string
	for _, s := range a.subscriptions() {
		names = append(names, s.Consumer)
	}
	return similar.To(a.Consumer, names)
}
