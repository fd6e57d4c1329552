package cli

import (
	"context"
	"time"

	"thread/engine"
)

// CheckConsumer refuses an empty consumer, which --consumer "$UNSET" gives.
func CheckConsumer(id string) error {
	if id == "" {
		return UsageError("--consumer is empty", "name the consumer")
	}
	return nil
}

// consumersTime bounds the wait for a busy thread: someone sits at the prompt.
const consumersTime = 500 * time.Millisecond

// subscriptions returns those of the thread, none when they cannot be looked up
// soon.
func (a *App) subscriptions() []engine.ConsumerInfo {
	t, err := a.reopen()
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
	return Similar(a.Consumer, names)
}
