package cli

import (
	"fmt"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
)

// consumerWords are the lines about the consumer that the verb names.
func (a *App) consumerWords() []Rule {
	flags := " --thread " + ShellWord(a.Dir) + " --consumer " + ShellWord(a.Consumer)
	return []Rule{
		{engine.ErrSubscriptionExists, 1, "consumer '" + a.Consumer + "' already exists", "add --replace to change it; its position stays"},
		{engine.ErrPaused, 1, "consumer '" + a.Consumer + "' is paused", "run thread resume" + flags},
		{engine.ErrStale, 1, "that delivery of consumer '" + a.Consumer + "' is not out", "nothing was changed; thread info --thread " + ShellWord(a.Dir) + " shows the one that is out; what is not settled comes again with thread next" + flags},
		{engine.ErrNotPull, 1, "consumer '" + a.Consumer + "' has a handler", "run thread subscribe" + flags + " --replace --pull, or leave its events to the handler"},
		{engine.ErrPull, 1, "consumer '" + a.Consumer + "' has no handler, and its events are not given out in parallel", "run thread consume without --parallel and --worker, or thread next" + flags},
	}
}

// explainUnsubscribed names the consumer, and the one that was perhaps meant.
func (a *App) explainUnsubscribed() *Failure {
	kind := " --handler <cmd>"
	if a.verb.Name == "next" {
		kind = " --pull"
	}
	f := &Failure{Code: 1, What: "consumer '" + a.Consumer + "' is not subscribed",
		Fix: "run thread subscribe --thread " + ShellWord(a.Dir) + " --consumer " + ShellWord(a.Consumer) + kind}
	if a.verb.Name == "unsubscribe" {
		f.Fix = "nothing to do; thread info --thread " + ShellWord(a.Dir) + " lists the consumers"
	}
	if meant := a.similarConsumer(); meant != "" {
		f.Fix += ", or did you mean --consumer " + ShellWord(meant) + "?"
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
		f.Fix = "it is tried again by itself then; thread logs" + flags + " -c " + ShellWord(a.Consumer) + " shows what it printed"
	case subscribed.Failing != 0 && subscribed.NextAt.After(time.Now()):
		f.What = fmt.Sprintf("consumer '%s' waits until %s to try event %d again, which failed (%s)", a.Consumer, event.FormatTime(subscribed.NextAt), subscribed.Failing, subscribed.LastError)
		f.Fix = "it is tried again by itself then; thread why " + fmt.Sprint(subscribed.Failing) + flags + " --consumer " + ShellWord(a.Consumer) + " tells more"
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
	if t, err := engine.Open(a.Dir); err == nil {
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
