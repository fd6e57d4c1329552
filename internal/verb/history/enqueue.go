package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/command"
	"thread/internal/pipe"
	"thread/internal/terminal"
)

type runEnqueueCmd struct {
	newRun
	Input      cli.Text `placeholder:"JSON" help:"What the command reads on stdin, at most 1 MiB."`
	InputFile  cli.Text `name:"input-file" placeholder:"FILE" help:"The same from a file, - for stdin."`
	Unique     cli.Text `placeholder:"KEY" help:"While a run with that key has not ended, print its id and queue nothing."`
	Priority   cli.Text `placeholder:"N" help:"Higher starts first, from 0 (default). Never across the order of one session."`
	At         cli.Text `placeholder:"TIME" help:"Not before that time, as for peek --since."`
	Delay      cli.Text `placeholder:"DURATION" help:"Not before that much time has passed."`
	Retries    cli.Text `placeholder:"N" help:"How many failed attempts are followed by another attempt (default 0)."`
	Backoff    cli.Text `placeholder:"D..D" help:"The pause after the first failure, which doubles, and the longest one (default 1s..5m)."`
	Timeout    cli.Text `placeholder:"DURATION" help:"How long one attempt may take."`
	After      cli.Text `placeholder:"RUN,..." help:"Start when all of these have ended."`
	Group      cli.Text `placeholder:"GROUP" help:"The group that the run belongs to."`
	AfterGroup cli.Text `name:"after-group" placeholder:"GROUP" help:"Start when all runs of that group have ended."`
	IfFailed   cli.Text `name:"if-failed" placeholder:"WHAT" help:"start (default) or cancel, where one of them has not completed."`
	cli.JSONFlag
}

var runEnqueueVerb = &cli.Verb{
	Name: "run enqueue", Summary: "Queue a run for thread run work and print its id",
	Details: `Runs of one session are started one at a time, in the order in which they were
queued. A run between two attempts keeps its place in its session.`,
	Exits: "0 queued, or a run with that unique key has not ended\n1 over a limit, or a run or group is unknown",
	Examples: `thread run enqueue --thread ./inbox --session S --trigger message --ref 42
thread run enqueue --thread ./inbox --agent mail --input '{"to":"a@b"}' --unique welcome-7 --retries 5
thread run work --thread ./inbox -- ./agent.sh`,
	Errors: errorWords, Grammar: func() cli.Command { return new(runEnqueueCmd) },
}

func (c *runEnqueueCmd) Run(ctx context.Context, a *cli.App) error {
	job, is, err := c.job()
	if err != nil {
		return err
	}
	input, err := c.input(a)
	if err != nil {
		return err
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		row, err := c.row(ctx, h)
		if err != nil {
			return err
		}
		if is {
			if err := history.SetJob(&row, job); err != nil {
				return err
			}
		}
		row, known, err := h.EnqueueJob(ctx, row, input)
		if errors.Is(err, history.ErrInvalid) {
			return cli.UsageError(strings.TrimPrefix(err.Error(), event.ErrInvalid.Error()+": "), "see thread run enqueue --help")
		}
		if err != nil {
			return err
		}
		if known {
			a.Warn("run %s with the key %q is %s: nothing was queued", row.ID, c.Unique.Value, row.Status)
		}
		return put(a, c.JSON, &row, row.ID)
	})
}

// input returns what --input or --input-file has.
func (c *runEnqueueCmd) input(a *cli.App) (input json.RawMessage, err error) {
	if c.Input.Set && c.InputFile.Set {
		return nil, cli.UsageError("--input and --input-file exclude each other", "give one of them")
	}
	if input, err = jsonText("--input", c.Input); c.InputFile.Set {
		input, err = jsonFrom(a, "--input-file", c.InputFile)
	}
	if err == nil && len(input) > history.MaxInput {
		return nil, cli.UsageError(fmt.Sprintf("the input has %d bytes, the limit is %d", len(input), history.MaxInput), "store it in a file and give its path")
	}
	return input, err
}

// job returns what the flags say of the run as a job, and whether they do.
func (c *runEnqueueCmd) job() (j history.Job, is bool, err error) {
	j = history.Job{Unique: c.Unique.Value, Group: c.Group.Value, AfterGroup: c.AfterGroup.Value}
	for _, f := range []struct {
		flag string
		text cli.Text
	}{{"--unique", c.Unique}, {"--group", c.Group}, {"--after-group", c.AfterGroup}, {"--after", c.After}} {
		if f.text.Set && f.text.Value == "" {
			return j, false, cli.UsageError(f.flag+" is empty", "give a name, or leave it out")
		}
		is = is || f.text.Set
	}
	if c.After.Set {
		j.After = strings.Split(c.After.Value, ",")
	}
	for _, f := range []struct {
		flag string
		text cli.Text
		most int64
		to   *int64
	}{{"--priority", c.Priority, history.MaxPriority, &j.Priority}, {"--retries", c.Retries, history.MaxRetries, &j.Retries}} {
		n, ok := cli.ParseNumber(f.text.Value)
		if f.text.Set && (!ok || n < 0 || n > f.most) {
			return j, false, cli.UsageError(fmt.Sprintf("%s %q is not a number from 0 to %d", f.flag, f.text.Value, f.most), "give a whole number")
		}
		*f.to, is = n, is || f.text.Set
	}
	if j.Due, err = dueTime(c.At, c.Delay); err != nil {
		return j, false, err
	}
	if c.Timeout.Set {
		d, err := cli.ParseDuration("--timeout", c.Timeout.Value)
		if err != nil || d < time.Millisecond {
			return j, false, cli.UsageError(fmt.Sprintf("--timeout %q is not a time of at least 1ms", c.Timeout.Value), "give for example 30s")
		}
		j.TimeoutMS = d.Milliseconds()
	}
	if j.BackoffMS, j.MaxPauseMS, err = pauses(c.Backoff); err != nil {
		return j, false, err
	}
	switch c.IfFailed.Or("start") {
	case "start":
	case "cancel":
		j.CancelIfFailed = true
	default:
		return j, false, cli.UsageError(fmt.Sprintf("--if-failed %q is neither start nor cancel", c.IfFailed.Value), "give one of them")
	}
	if c.IfFailed.Set && len(j.After) == 0 && j.AfterGroup == "" {
		return j, false, cli.UsageError("--if-failed is about the runs that the run waits for", "add --after or --after-group")
	}
	return j, is || !j.Due.IsZero() || c.Timeout.Set || c.Backoff.Set, nil
}

// dueTime returns when a run is due, the zero time for at once.
func dueTime(at, delay cli.Text) (time.Time, error) {
	switch {
	case at.Set && delay.Set:
		return time.Time{}, cli.UsageError("--at and --delay exclude each other", "give one of them")
	case at.Set:
		return cli.ParseTime("--at", at.Value, time.Now(), cli.Future)
	case delay.Set:
		d, err := cli.ParseDuration("--delay", delay.Value)
		return time.Now().Add(d).Truncate(time.Millisecond).UTC(), err
	}
	return time.Time{}, nil
}

// pauses reads --backoff.
func pauses(text cli.Text) (first, most int64, err error) {
	if !text.Set {
		return 0, 0, nil
	}
	from, to, both := strings.Cut(text.Value, "..")
	a, err := cli.ParseDuration("--backoff", from)
	b := a
	if both && err == nil {
		b, err = cli.ParseDuration("--backoff", to)
	}
	if err != nil || a < time.Millisecond || b < a {
		return 0, 0, cli.UsageError(fmt.Sprintf("--backoff %q is not a pause and a longer one", text.Value), "give for example 1s..5m")
	}
	if !both {
		return a.Milliseconds(), 0, nil
	}
	return a.Milliseconds(), b.Milliseconds(), nil
}

// asJob gives the command of a queued run its input and its time.
func (j *job) asJob(ctx context.Context, r *history.Run, row *history.RunRow, spec *command.Spec) error {
	if !j.queued || r == nil {
		return nil
	}
	if of, _ := history.JobOf(row); of.Timeout() > 0 {
		j.timeout, spec.Timeout = of.Timeout(), of.Timeout()
	}
	answer, err := r.Answer(ctx, row)
	if err != nil {
		return err
	}
	j.answer = string(answer)
	input, err := retryBusy(func() (json.RawMessage, error) { return r.Input(ctx) })
	if err != nil || input == nil {
		return err
	}
	spec.Stdin = bytes.NewReader(append(bytes.Clone(input), '\n'))
	return nil
}

func retryBusy[T any](call func() (T, error)) (v T, err error) {
	for range busyTries {
		if v, err = call(); !errors.Is(err, engine.ErrBusy) {
			break
		}
	}
	return v, err
}

// keeper keeps the end of what it passes on.
type keeper struct {
	to   io.Writer
	tail *pipe.Tail
}

func (k keeper) Write(b []byte) (int, error) {
	_, _ = k.tail.Write(b) // it never fails
	return k.to.Write(b)
}

// resultTo returns where the command of the job prints to.
func (j *job) resultTo(stdout *os.File) io.Writer {
	if !j.queued {
		return stdout
	}
	j.stdout.Most = history.MaxResult
	return keeper{stdout, &j.stdout}
}

// lastOf returns the last line that is not blank.
func lastOf(t *pipe.Tail) []byte {
	b := bytes.TrimSpace(t.Bytes())
	return b[bytes.LastIndexByte(b, '\n')+1:]
}

// laterOf returns when a command that ended with that code is to be tried again, by its last
// line; 0 where that says nothing.
func (j *job) laterOf(code int) time.Duration {
	if !j.queued || code != laterCode {
		return 0
	}
	var in struct {
		Delay string `json:"delay"`
	}
	if json.Unmarshal(lastOf(&j.stdout), &in) != nil || in.Delay == "" {
		return 0
	}
	d, err := cli.ParseDuration("delay", in.Delay)
	if err != nil {
		return 0
	}
	return max(d, time.Millisecond)
}

type runResultCmd struct {
	cli.ThreadFlags
	RunID   cli.Text `arg:"" name:"run" help:"The id of the run."`
	Wait    bool     `help:"Wait until the run has ended."`
	Timeout cli.Text `placeholder:"DURATION" help:"With --wait, how long."`
	cli.JSONFlag
}

var runResultVerb = &cli.Verb{
	Name: "run result", Args: "<run>", Summary: "Print the result of a run",
	Details: `The result is the last line that the command of thread run work printed on stdout. A
line that is not JSON is printed as text; with --json it is the member result_text.`,
	Exits:    "0 the run has completed\n1 the run has failed, was cancelled, or is unknown\n75 the run has not ended",
	Examples: `thread run result --thread ./inbox --wait --timeout 1m "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runResultCmd) },
}

func (c *runResultCmd) Run(ctx context.Context, a *cli.App) error {
	if c.Timeout.Set && !c.Wait {
		return cli.UsageError("--timeout is for --wait", "add --wait")
	}
	var limit time.Duration
	if c.Timeout.Set {
		d, err := cli.ParseDuration("--timeout", c.Timeout.Value)
		if err != nil {
			return err
		}
		limit = d
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		ctx, stop := cli.Interruptible(ctx)
		defer stop()
		row, err := c.ended(ctx, h, limit)
		if err != nil {
			return err
		}
		if !row.Ended() {
			return &cli.Failure{Code: laterCode, What: fmt.Sprintf("run %q is %s", row.ID, row.Status), Fix: "ask later, or wait with --wait"}
		}
		if row.Status != history.Completed {
			what := fmt.Sprintf("run %q is %s", row.ID, row.Status)
			if row.ErrorMessage != "" {
				what += ": " + firstLine(row.ErrorMessage)
			}
			return cli.LogicError(what, "see thread run show "+cli.ShellWord(row.ID))
		}
		value, isText, err := h.Result(ctx, row.ID)
		if err != nil {
			return err
		}
		return c.print(a, value, isText)
	})
}

// ended returns the run, which has ended where that is waited for.
func (c *runResultCmd) ended(ctx context.Context, h *history.History, limit time.Duration) (row history.RunRow, err error) {
	if !c.Wait {
		return row, h.Get(ctx, &row, c.RunID.Value)
	}
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		waiting, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	row, err = h.AwaitEnd(waiting, c.RunID.Value)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		err = nil // the time has ended: the run is as it is
	}
	return row, err
}

func (c *runResultCmd) print(a *cli.App, value json.RawMessage, isText bool) error {
	var text string
	if isText {
		if err := json.Unmarshal(value, &text); err != nil {
			return err
		}
	}
	switch {
	case c.JSON && isText:
		return a.Out.JSON(struct {
			Text string `json:"result_text"`
		}{text})
	case c.JSON:
		return a.Out.JSON(struct {
			Result json.RawMessage `json:"result"`
		}{value})
	case isText:
		return a.Out.Text(terminal.Printable(text) + "\n")
	case value == nil:
		return nil
	}
	return a.Out.Text(string(value) + "\n")
}
