package serve

import (
	"cmp"
	"context"
	"errors"

	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/serve"
	"thread/lane"
)

// ask opens the thread directory, so that a wrong one is named as one, and
// passes q to its server.
func ask(ctx context.Context, a *cli.App, dir string, q serve.Request) (serve.Answer, error) {
	t, err := a.Open(dir)
	if err != nil {
		return serve.Answer{}, err
	}
	defer t.Close()
	answer, err := serve.Ask(ctx, t, q)
	if err == nil && answer.Error != "" {
		return answer, refusedBy(lane.Refusal(answer.Error), q)
	}
	return answer, err
}

// askWhatRuns is ask for verbs that have nothing to do where nothing runs, with a thread
// serve or without (L-11, L-13, L-19).
func askWhatRuns(ctx context.Context, a *cli.App, dir string, q serve.Request) (serve.Answer, error) {
	answer, err := ask(ctx, a, dir, q)
	if !errors.Is(err, serve.ErrNobody) {
		return answer, err
	}
	running, lookErr := whatRuns(ctx, a, dir, q.Consumer)
	if running || lookErr != nil {
		return answer, cmp.Or(lookErr, err)
	}
	return serve.Answer{Ended: true}, nil
}

// whatRuns reports whether the handler of a consumer runs without a server, or with ""
// any handler of the thread.
func whatRuns(ctx context.Context, a *cli.App, dir, consumer string) (bool, error) {
	t, err := a.Open(dir)
	if err != nil {
		return false, err
	}
	defer t.Close()
	if consumer != "" {
		state, err := dispatch.Status(t, consumer)
		return state.Running, err
	}
	consumer, err = dispatch.Running(ctx, t)
	return consumer != "", err
}

// oneOrAll checks that a consumer is given, or else one of the other flags alone.
func oneOrAll(consumer, key cli.Text, all bool, flags string) error {
	switch {
	case all && (consumer.Set || key.Set):
		return cli.UsageError(flags+" is for all handlers of the thread", "leave out --consumer and --key")
	case all:
		return nil
	case !consumer.Set:
		return cli.UsageError("missing --consumer", "add --consumer CONSUMER, or "+flags)
	}
	return cli.CheckConsumer(consumer.Value)
}

// keyFlag names a delivery of thread consume --parallel --key.
type keyFlag struct {
	Key cli.Text `placeholder:"KEY" help:"Its delivery of the events with this key, of thread consume --parallel --key, not the handler as a whole."`
}

// key returns the key, nil for none: "" is one.
func (f *keyFlag) key() *string {
	if !f.Key.Set {
		return nil
	}
	return &f.Key.Value
}
