package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
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

// consumerWords are the lines about the consumer that the verb names.
func (a *App) consumerWords() []Rule {
	thread := " --thread " + ShellWord(a.Dir)
	flags := thread + " --consumer " + ShellWord(a.Consumer)
	return []Rule{
		{engine.ErrSubscriptionExists, 1, "consumer '" + a.Consumer + "' already exists", "run thread unsubscribe" + flags + " first, or add --replace to change it; its position stays; if it is not yours, name another consumer"},
		{engine.ErrPaused, 1, "consumer '" + a.Consumer + "' is paused", "run thread resume" + flags},
		{engine.ErrStale, 1, "that delivery of consumer '" + a.Consumer + "' is not in flight", "nothing was changed; thread info --thread " + ShellWord(a.Dir) + " shows the delivery in flight; events that are not settled are redelivered by thread next" + flags},
		{engine.ErrConsumerBusy, 1, "another process works on the events of consumer '" + a.Consumer + "'", "wait until it ends; thread info" + thread + " shows what is in flight"},
		{engine.ErrNotPull, 1, "consumer '" + a.Consumer + "' has a handler", "subscribe a consumer without a handler with thread subscribe" + thread + " --consumer <new name> --pull; the handler takes the events of this one"},
		{engine.ErrPull, 1, "consumer '" + a.Consumer + "' has no handler, and its events are not delivered in parallel", "run thread consume without --parallel and --worker, or thread next" + flags},
	}
}

// takesEvents are the verbs that move a consumer's position, or change its subscription.
// A similar consumer, as worker-1 for worker-2, is mostly another program's, which would
// lose events or its handler.
func (a *App) takesEvents() bool {
	return slices.Contains([]string{"subscribe", "pop", "next", "ack", "seek", "consume", "unsubscribe"}, a.verb.Name)
}

// explainUnsubscribed advises to subscribe where events are taken. Elsewhere it names the
// consumer that was perhaps meant.
func (a *App) explainUnsubscribed() *Failure {
	flags := " --thread " + ShellWord(a.Dir)
	f := &Failure{Code: 1, What: "consumer '" + a.Consumer + "' is not subscribed", Fix: "thread info" + flags + " lists the consumers"}
	switch {
	case a.verb.Name == "unsubscribe":
		f.Fix = "nothing to do; " + f.Fix
	case a.verb.Name == "next":
		f.Fix = "run thread subscribe" + flags + " --consumer " + ShellWord(a.Consumer) + " --pull; " + f.Fix
	case a.takesEvents():
		f.Fix = "run thread subscribe" + flags + " --consumer " + ShellWord(a.Consumer) + " --handler <cmd>; " + f.Fix
	default:
		if meant := a.similarConsumer(); meant != "" {
			f.Fix = "did you mean --consumer " + ShellWord(meant) + "? " + f.Fix
		}
	}
	return f
}

// explainHandled says what the consumer's handler is doing: it runs, or it waits to try
// again.
func (a *App) explainHandled() *Failure {
	flags := " --thread " + ShellWord(a.Dir)
	f := &Failure{Code: 1, What: "consumer '" + a.Consumer + "' is being handled by another process",
		Fix: "wait until it is done; thread info" + flags + " shows what runs"}
	subscribed, state := a.handled()
	switch {
	case state.RetryAt != nil && !state.Running:
		f.What = fmt.Sprintf("consumer '%s' waits until %s, because its handler failed (%s)", a.Consumer, event.FormatTime(*state.RetryAt), state.LastExit)
		f.Fix = "it is retried automatically then; thread logs" + flags + " -c " + ShellWord(a.Consumer) + " shows what it printed"
	case subscribed.Failing != 0 && subscribed.NextAt.After(time.Now()):
		f.What = fmt.Sprintf("consumer '%s' waits until %s to retry event %d, which failed (%s)", a.Consumer, event.FormatTime(subscribed.NextAt), subscribed.Failing, subscribed.LastError)
		f.Fix = "it is retried automatically then; thread why " + fmt.Sprint(subscribed.Failing) + flags + " --consumer " + ShellWord(a.Consumer) + " shows more"
	}
	return f
}

// handled returns what is known of the consumer, as far as it can be looked up soon.
func (a *App) handled() (c engine.ConsumerInfo, state dispatch.State) {
	for _, s := range a.subscriptions() {
		if s.Consumer == a.Consumer {
			c = s
		}
	}
	if t, err := a.OpenAddress(a.Dir); err == nil {
		state, _ = dispatch.Status(t, a.Consumer) // without it the handler counts as running
		t.Close()
	}
	return c, state
}

// explainHeldBack says what a prune would take away.
func explainHeldBack(e *engine.HeldBackError) *Failure {
	if e.Dead {
		return &Failure{Code: 1, What: fmt.Sprintf("event %d is a dead letter of consumer '%s', and events up to %d would be dropped", e.First, e.Consumer, e.Through),
			Fix: "run thread dead retry or thread dead drop first, or add --force to drop the event and keep the letter"}
	}
	return &Failure{Code: 1, What: fmt.Sprintf("consumer '%s' has not acked event %d, and events up to %d would be dropped", e.Consumer, e.First, e.Through),
		Fix: "let it catch up, unsubscribe it, or add --force to drop what it waits for"}
}
