package serve

import (
	"thread/internal/cli"
	"thread/internal/serve"
	"thread/lane"
)

// ask opens the thread directory, so that a wrong one is named as such, and
// passes q to its server.
func ask(a *cli.App, dir string, q serve.Request) (serve.Answer, error) {
	t, err := a.Open(dir)
	if err != nil {
		return serve.Answer{}, err
	}
	defer t.Close()
	answer, err := serve.Ask(t.Dir(), q)
	if err == nil && answer.Error != "" {
		return answer, refusedBy(lane.Refusal(answer.Error), q)
	}
	return answer, err
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
