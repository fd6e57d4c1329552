package serve

import (
	"errors"
	"fmt"
	"time"

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
	if errors.Is(err, serve.ErrNobody) {
		return answer, cli.LogicError("no thread serve runs for "+a.Dir, "start one with thread serve --thread "+a.Dir)
	}
	if err == nil && answer.Error != "" {
		return answer, refusedBy(lane.Refusal(answer.Error), q.Consumer)
	}
	return answer, err
}

// refusedBy puts the server's refusal into words, which begin with the reason as
// it is known (L-16).
func refusedBy(r lane.Refusal, consumer string) error {
	switch r {
	case lane.NoActiveRun:
		return cli.LogicError(string(r)+": the handler of '"+consumer+"' does not run", "see thread runs")
	case lane.NotStreaming:
		return cli.LogicError(string(r)+": the handler of '"+consumer+"' takes no messages now", "retry when thread runs shows it as streaming")
	case lane.Compacting:
		return cli.LogicError(string(r)+": the handler of '"+consumer+"' is compacting", "retry when thread runs shows it as streaming")
	}
	return cli.LogicError(string(r), "see the log of thread serve")
}

func timeAgo(t time.Time) string { return fmt.Sprint(max(0, time.Since(t)).Truncate(time.Millisecond)) }
