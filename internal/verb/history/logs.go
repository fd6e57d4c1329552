package history

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
	"thread/internal/terminal"
)

type logsCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer."`
	RunID    cli.Text `name:"run" placeholder:"RUN" help:"Only this run."`
	Follow   bool     `short:"f" help:"Follow what is printed later, until interrupted."`
	Runs     cli.Text `placeholder:"N" help:"At most N runs that have ended, the newest (default 10, 0 for all)."`
	cli.JSONFlag
}

var logsVerb = &cli.Verb{
	Name: "logs", Summary: "Show what a handler printed, run by run",
	Details: `Oldest first. Each run begins and ends with a line that begins with ==> and has its id.
The last 16 KiB of an ended run are kept. The output of the current run comes last, and
--follow continues with it and with later runs. The complete output, not divided into
runs, is in logs/handlers in the thread directory.`,
	Exits: "0 printed, perhaps nothing\n1 the run is not recorded",
	Examples: `thread logs --thread ./inbox -c mail
thread logs --thread ./inbox -c mail -f
thread logs --thread ./inbox -c mail --run 5f0c6e1d2b3a49788796a5b4c3d2e1f0`,
	Errors: errorWords, Grammar: func() cli.Command { return new(logsCmd) },
}

// logs prints runs of one consumer.
type logs struct {
	a    *cli.App
	t    *engine.Thread
	h    *history.History
	c    *logsCmd
	safe bool // on a terminal: nothing that it would take for a command

	done    map[string]bool // the runs that were printed to their end
	run     string          // what is being printed, "" for none
	at      int64           // how far its log was read
	printed int64
	open    bool // the last line has no end yet
}

func (c *logsCmd) Run(ctx context.Context, a *cli.App) error {
	if c.Follow && (c.RunID.Set || c.JSON) {
		return cli.UsageError("--follow goes with neither --run nor --json", "leave it out")
	}
	limit := int64(10)
	if c.Runs.Set {
		n, ok := cli.ParseNumber(c.Runs.Value)
		if !ok {
			return cli.UsageError(fmt.Sprintf("--runs %q is not a number", c.Runs.Value), "give how many runs, 0 for all")
		}
		limit = n
	}
	t, err := a.OpenFor(c.Thread.Value, c.Consumer.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	return withRuns(ctx, a, func(h *history.History) error {
		l := &logs{a: a, t: t, h: h, c: c, safe: terminal.TableColumns(a.Out.W) > 0, done: map[string]bool{}}
		if c.RunID.Set {
			return l.one(ctx, c.RunID.Value)
		}
		var list []history.RunRow
		for r, err := range h.HandlerRuns(ctx, history.HandlerQuery{Consumer: c.Consumer.Value, Limit: limit}) {
			if err != nil {
				return err
			}
			if r.Ended() {
				list = append(list, r)
			}
		}
		slices.Reverse(list)
		for i := range list {
			if err := l.ended(ctx, &list[i]); err != nil {
				return err
			}
		}
		if len(list) == 0 {
			if r, err := l.active(ctx); err != nil {
				return err
			} else if r == nil {
				if err := a.CheckSubscribed(ctx, t, c.Consumer.Value); err != nil {
					return err
				}
			}
		}
		if !c.Follow {
			return l.running(ctx)
		}
		return l.follow(ctx)
	})
}

// one prints a single run.
func (l *logs) one(ctx context.Context, id string) error {
	var row history.RunRow
	var there bool
	err := l.h.View(ctx, func(tx *history.Tx) (err error) {
		there, err = tx.Get(&row, id)
		return err
	})
	if err != nil {
		return err
	}
	if there && row.AgentName != l.c.Consumer.Value {
		return cli.LogicError(fmt.Sprintf("run %q is not one of consumer '%s'", id, l.c.Consumer.Value), "see thread runs --all")
	}
	if there && row.Ended() {
		return l.ended(ctx, &row)
	}
	a, err := l.active(ctx)
	if err != nil {
		return err
	}
	if a != nil && a.RunID == id {
		return l.running(ctx)
	}
	return cli.LogicError(fmt.Sprintf("no run %q of consumer '%s' is recorded", id, l.c.Consumer.Value), "see thread runs --all; runs are kept for a day, those that failed for a week")
}

// logJSON is a run with what it printed.
type logJSON struct {
	Consumer  string  `json:"consumer_id"`
	State     string  `json:"state"`
	RunID     string  `json:"run_id"`
	StartedAt string  `json:"started_at"`
	EndedAt   *string `json:"ended_at"`
	Exit      *string `json:"exit"`
	ExitCode  *int64  `json:"exit_code"`
	Output    string  `json:"output"`
	Bytes     int64   `json:"output_bytes"`
	Truncated bool    `json:"truncated"`
}

// ended prints a run that has ended.
func (l *logs) ended(ctx context.Context, r *history.RunRow) error {
	out, err := l.h.Command(ctx, r.ID)
	if err != nil {
		return err
	}
	l.done[r.ID] = true
	h, _ := history.HandlerOf(r)
	if l.c.JSON {
		ended := event.FormatTime(r.EndedAt)
		return l.a.Out.JSON(logJSON{r.AgentName, r.Status, r.ID, event.FormatTime(r.StartedAt), &ended, jsonform.Null(h.Exit), h.ExitCode, out.Output, out.Bytes, out.Truncated})
	}
	if err := l.begin(r.ID, r.StartedAt, r.TriggerRef, r.InitiatorRef); err != nil {
		return err
	}
	if out.Truncated {
		l.mark(fmt.Sprintf("the last %d of %d bytes", len(out.Output), out.Bytes))
	}
	if err := l.text(out.Output); err != nil {
		return err
	}
	return l.end(r)
}

// mark prints a line of our own.
func (l *logs) mark(text string) {
	if l.open {
		l.a.Out.Buf = append(l.a.Out.Buf, '\n')
		l.open = false
	}
	l.a.Out.Buf = append(l.a.Out.Buf, "==> "+text+"\n"...)
}

func (l *logs) begin(run string, since time.Time, event, source string) error {
	l.mark(line("run "+run, "started "+at(since.UTC()), labelled("event", event), labelled("from", source)))
	l.run, l.at, l.printed = run, 0, 0
	return l.a.Out.More()
}

func (l *logs) end(r *history.RunRow) error {
	h, _ := history.HandlerOf(r)
	exit := h.Exit
	if exit == "" {
		exit = r.Status
	}
	l.mark(line("run "+r.ID, exit, "after "+r.Duration(r.EndedAt).Round(time.Millisecond).String()))
	l.run = ""
	return l.a.Out.More()
}

// text prints what a handler has printed.
func (l *logs) text(s string) error {
	if s == "" {
		return nil
	}
	l.open = !strings.HasSuffix(s, "\n")
	if l.safe {
		var b strings.Builder
		for part := range strings.SplitAfterSeq(s, "\n") {
			body := strings.TrimSuffix(part, "\n")
			for i, cell := range strings.Split(body, "\t") {
				if i > 0 {
					b.WriteByte('\t')
				}
				b.WriteString(terminal.Printable(cell))
			}
			b.WriteString(part[len(body):])
		}
		s = b.String()
	}
	return l.a.Out.Text(s)
}

// active returns the run of the consumer that is under way, nil for none.
func (l *logs) active(ctx context.Context) (*dispatch.ActiveRun, error) {
	list, err := dispatch.Active(ctx, l.t)
	for i := range list {
		if list[i].Consumer == l.c.Consumer.Value && list[i].Running {
			return &list[i], err
		}
	}
	return nil, err
}

// running prints what the run under way has printed until now.
func (l *logs) running(ctx context.Context) error {
	r, err := l.active(ctx)
	if err != nil || r == nil || l.done[r.RunID] { // it is recorded before its supervisor has done with it
		return err
	}
	if l.c.JSON {
		j := logJSON{Consumer: r.Consumer, State: history.Running, RunID: r.RunID, StartedAt: event.FormatTime(r.Since)}
		text, _ := l.read(r.Log, 0)
		j.Output, j.Bytes = strings.ToValidUTF8(text, "\uFFFD"), int64(len(text))
		return l.a.Out.JSON(j)
	}
	if l.run != r.RunID {
		if err := l.begin(r.RunID, r.Since, "", ""); err != nil {
			return err
		}
		l.at = r.Log
	}
	return l.more(-1)
}

// maxRead bounds how much of a log is read at once.
const maxRead = 1 << 20

// read returns what stands in the log of the handler from there on, most bytes of it
// at most, 0 for maxRead, and where that ends. A log that was rotated is read from its
// start.
func (l *logs) read(from, most int64) (text string, to int64) {
	f, err := os.Open(dispatch.OutputPath(l.t.Dir(), l.c.Consumer.Value))
	if err != nil {
		return "", from // nothing was printed yet
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < from {
		from = 0
	}
	if most <= 0 || most > maxRead {
		most = maxRead
	}
	b, _ := io.ReadAll(io.NewSectionReader(f, from, most)) // what can be read
	return string(b), from + int64(len(b))
}

// more prints what has come since; of a run that has ended, of that many bytes in all.
func (l *logs) more(total int64) error {
	for {
		most := int64(0)
		if total >= 0 {
			if most = total - l.printed; most <= 0 {
				return nil
			}
		}
		text, to := l.read(l.at, most)
		if text == "" {
			return nil
		}
		l.at, l.printed = to, l.printed+int64(len(text))
		if err := l.text(text); err != nil {
			return err
		}
	}
}

// follow continues with the runs that were not printed yet.
func (l *logs) follow(ctx context.Context) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	for r, err := range l.h.FollowHandlerRuns(ctx, history.HandlerQuery{Consumer: l.c.Consumer.Value}) {
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case r.ID == "":
			err = l.running(ctx)
		case l.done[r.ID]:
		case r.ID == l.run:
			l.done[r.ID] = true
			var out history.CommandOutput
			if out, err = l.h.Command(ctx, r.ID); err == nil {
				err = l.more(out.Bytes)
			}
			if err == nil {
				err = l.end(&r)
			}
		default:
			err = l.ended(ctx, &r)
		}
		if err != nil {
			return err
		}
		if err = l.a.Out.Flush(); err != nil {
			return err
		}
	}
	return nil
}
