package serve

import (
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
	if err == nil && answer.Error != "" {
		return answer, refusedBy(lane.Refusal(answer.Error), q.Consumer)
	}
	return answer, err
}

func timeAgo(t time.Time) string { return fmt.Sprint(max(0, time.Since(t)).Truncate(time.Millisecond)) }
