package serve

import (
	"thread/internal/cli"
	"thread/internal/serve"
	"thread/lane"
)

// errorWords are the lines of the table of error words for the verbs that talk to a
// server.
func errorWords(a *cli.App) []cli.Rule {
	return []cli.Rule{
		{Is: serve.ErrNobody, Code: 1, What: "no thread serve runs for " + a.Dir, Fix: "start one with thread serve --thread " + a.Dir},
	}
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
