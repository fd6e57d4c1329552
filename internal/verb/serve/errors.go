package serve

import (
	"thread/internal/cli"
	"thread/internal/serve"
	"thread/lane"
)

// errorWords are the lines of the table of error words for a server and the verbs that
// talk to one.
func errorWords(a *cli.App) []cli.Rule {
	return []cli.Rule{
		{Is: serve.ErrNobody, Code: 1, What: "no thread serve runs for " + a.Dir, Fix: "start one with thread serve --thread " + a.Dir},
		{Is: serve.ErrSilent, Code: 1, Fix: "see its log on the hosts where it runs, and whether they are stopped"},
		{Is: serve.ErrListen, Code: 2, Fix: "give unix:PATH in a directory of your own, or ADDRESS, ADDRESS:PORT or :PORT with --token-file or " + envToken},
		{Is: serve.ErrAddress, Code: 1, Fix: "end what listens there, or give another --listen"},
	}
}

// whose names what a request is about.
func whose(q serve.Request) string {
	if q.All != "" {
		return "a handler of the thread"
	}
	if q.Key != nil {
		return "the delivery with key '" + *q.Key + "' of '" + q.Consumer + "'"
	}
	return "the handler of '" + q.Consumer + "'"
}

// refusedBy puts the server's refusal into words, which begin with the reason as
// it is known (L-16).
func refusedBy(r lane.Refusal, q serve.Request) error {
	who := whose(q)
	switch r {
	case lane.NoActiveRun:
		return cli.LogicError(string(r)+": "+who+" does not run", "see thread runs")
	case lane.NotStreaming:
		return cli.LogicError(string(r)+": "+who+" takes no messages now", "retry when thread runs shows it as streaming")
	case lane.Compacting:
		return cli.LogicError(string(r)+": "+who+" is compacting", "retry when thread runs shows it as streaming")
	}
	return cli.LogicError(string(r), "see the log of thread serve")
}
