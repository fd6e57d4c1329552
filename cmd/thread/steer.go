//go:build !noserve

package main

import (
	"errors"
	"fmt"
	"time"

	"thread/lane"
	"thread/serve"
)

// ask opens the thread directory, so that a wrong one is named as such, and
// passes q to its server.
func (a *app) ask(dir string, q serve.Request) (serve.Answer, error) {
	t, err := a.open(dir)
	if err != nil {
		return serve.Answer{}, err
	}
	defer t.Close()
	answer, err := serve.Ask(t.Dir(), q)
	if errors.Is(err, serve.ErrNobody) {
		return answer, logic("no thread serve runs for "+a.dir, "start one with thread serve --thread "+a.dir)
	}
	if err == nil && answer.Error != "" {
		return answer, refusedBy(lane.Refusal(answer.Error), q.Consumer)
	}
	return answer, err
}

// refusedBy puts the server's refusal into words, which begin with the reason as
// it is known (contract L-16).
func refusedBy(r lane.Refusal, consumer string) error {
	switch r {
	case lane.NoActiveRun:
		return logic(string(r)+": the handler of '"+consumer+"' does not run", "see thread runs")
	case lane.NotStreaming:
		return logic(string(r)+": the handler of '"+consumer+"' takes no messages now", "retry when thread runs shows it as streaming")
	case lane.Compacting:
		return logic(string(r)+": the handler of '"+consumer+"' is compacting", "retry when thread runs shows it as streaming")
	}
	return logic(string(r), "see the log of thread serve")
}

func timeAgo(t time.Time) string { return fmt.Sprint(max(0, time.Since(t)).Truncate(time.Millisecond)) }
