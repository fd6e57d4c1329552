package history

import (
	"thread/history"
	"thread/internal/cli"
)

// laterCode is the exit code of a run whose session is busy (EX_TEMPFAIL): a handler that ends
// with it is tried again later, and nothing is counted.
const laterCode = 75

// unknownCode is the exit code of a step of which it is unknown whether it has happened.
const unknownCode = 76

// cancelledCode is the exit code that says that a run is to be cancelled.
const cancelledCode = 3

// waitingCode is the exit code of a command whose run waits.
const waitingCode = 77

// errorWords are the lines of the table of error words for recorded runs.
func errorWords(a *cli.App) []cli.Rule {
	in := " --thread " + cli.ShellWord(a.Dir)
	return []cli.Rule{
		{Is: history.ErrNotFound, Code: 1, Fix: "see thread run list and thread session list" + in},
		{Is: history.ErrExists, Code: 1, Fix: "leave --id out, or name another one"},
		{Is: history.ErrRecovered, Code: 1, Fix: "stop this worker: the run is not its own any more; see thread run show" + in},
		{Is: history.ErrEnded, Code: 1, Fix: "start another run with thread run start"},
		{Is: history.ErrState, Code: 1, Fix: "only runs that have failed or timed out are requeued"},
		{Is: history.ErrActive, Code: laterCode, Fix: "run it later, wait with thread run exec --wait, or queue it with thread run enqueue"},
		{Is: history.ErrNoneReady, Code: 1, Fix: "queue one with thread run enqueue, or wait with --wait"},
		{Is: history.ErrOwner, Code: 1, Fix: "run it as that account, or as root"},
		{Is: history.ErrOutcome, Code: unknownCode, Fix: "decide with thread run resolve"},
		{Is: history.ErrWaiting, Code: waitingCode, Fix: "end the command of the run with this exit code"},
		{Is: history.ErrLimit, Code: 1, Fix: "wait, or change the limit with thread history limit"},
		{Is: history.ErrCancelled, Code: cancelledCode, Fix: "end it with thread run end --status cancelled"},
	}
}
