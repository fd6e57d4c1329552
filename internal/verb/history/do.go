package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"thread/history"
	"thread/internal/cli"
	"thread/internal/command"
)

// stepFlags name the run of a step.
type stepFlags struct {
	cli.ThreadFlags
	Run     cli.Text `name:"run" placeholder:"RUN" help:"The run; by default the run in THREAD_RUN_ID."`
	Attempt cli.Text `placeholder:"N" help:"The attempt of the run that this step belongs to; by default the attempt in THREAD_RUN_ATTEMPT."`
}

func (c *stepFlags) attach(h *history.History) (*history.Run, error) {
	f := runFlags{RunID: c.Run, Attempt: c.Attempt}
	return f.attach(h)
}

type runDoCmd struct {
	stepFlags
	Key     cli.Text `required:"" placeholder:"KEY" help:"The name of the step, unique in its run."`
	Once    bool     `help:"Do not run CMD again while it is unknown whether it has happened."`
	Retries cli.Text `placeholder:"N" help:"How often a CMD that fails is run again, after a pause of 1s that doubles (default 0)."`
	Timeout cli.Text `placeholder:"DURATION" help:"End CMD after that time."`
	Command []string `arg:"" optional:"" name:"cmd" help:"The program to run, and its arguments."`

	retries int64
	timeout time.Duration
}

var runDoVerb = &cli.Verb{
	Name: "run do", Args: "-- CMD ARGS...", Summary: "Run a command as a step that happens once in its run",
	Details: `For the command of a run. If a step with that key has ended well in this run, prints
its stored output, and does not run CMD. Otherwise stores that the step begins, runs
CMD, and stores its end and what it printed on stdout, at most 32 MiB. Thus a run that
is started again repeats no step that has ended. A second process with the key waits.
If the process died during the step, CMD runs again. With --once, the outcome of the
step is then unknown, as it is after a signal or --timeout: exit code 76, until thread
run resolve decides. Effects on other systems happen at least once, unless these take
THREAD_STEP_KEY, which CMD finds in its environment, as their idempotency key.`,
	Exits: "0 CMD has exited 0, now or before; otherwise its own exit code\n1 there is no such run, or it has ended\n76 with --once: it is unknown whether the step has happened\n124 --timeout was over\n126 CMD cannot be run\n127 CMD is not found",
	Examples: `thread run do --key charge --once -- ./charge.sh
ID=$(thread run do --key create --retries 3 -- ./create.sh)`,
	Errors: errorWords, Grammar: func() cli.Command { return new(runDoCmd) },
}

func (c *runDoCmd) Run(ctx context.Context, a *cli.App) (err error) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return cli.UsageError("no command is given", "add it behind --, for example thread run do --key K -- ./charge.sh")
	}
	if c.Once && c.Retries.Set {
		return cli.UsageError("--once and --retries exclude each other", "leave one of them out")
	}
	if c.Key.Value == "" {
		return cli.UsageError("--key is empty", "name the step")
	}
	if c.Retries.Set {
		n, ok := cli.ParseNumber(c.Retries.Value)
		if !ok || n < 0 || n > history.MaxRetries {
			return cli.UsageError(fmt.Sprintf("--retries %q is not a number from 0 to %d", c.Retries.Value, history.MaxRetries), "give a whole number")
		}
		c.retries = n
	}
	if c.Timeout.Set {
		if c.timeout, err = cli.ParseDuration("--timeout", c.Timeout.Value); err != nil {
			return err
		}
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		r, err := c.attach(h)
		if err != nil {
			return err
		}
		for failed := int64(0); ; {
			output, code, err := c.step(ctx, r)
			if err != nil {
				return err
			}
			if code == 0 {
				a.Out.Buf = append(a.Out.Buf, output...)
				return a.Out.More()
			}
			if failed++; failed > c.retries {
				return cli.Exited(code)
			}
			if err := c.pause(ctx, failed); err != nil {
				return err
			}
		}
	})
}

// pause waits before the next try.
func (c *runDoCmd) pause(ctx context.Context, failed int64) error {
	timer := time.NewTimer((&history.Job{Failures: failed}).Pause())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// step returns the output of the step, and its exit code.
func (c *runDoCmd) step(ctx context.Context, r *history.Run) (output []byte, code int, err error) {
	opts := []history.StepOption{history.StepCommand(printableAll(c.Command))}
	if c.Once {
		opts = append(opts, history.Once())
	}
	var s *history.Step
	_, err = retryBusy(func() (struct{}, error) {
		s, output, err = r.BeginStep(ctx, c.Key.Value, opts...)
		return struct{}{}, err
	})
	if err != nil || s == nil {
		return output, 0, err
	}
	x, out, err := c.run(ctx, r, s)
	code = x.Shell()
	status, message := history.Completed, ""
	switch {
	case err != nil:
		if code = notExecutableCode; errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = notFoundCode
		}
		status, message = history.Failed, err.Error()
		err = &cli.Failure{Code: code, What: "cannot run " + c.Command[0] + ": " + err.Error(), Fix: "check the path and the mode of the command"}
	case out.over:
		status, message, code = history.Failed, "too much output", 1
		err = cli.LogicError(fmt.Sprintf("the command has printed more than %d bytes", history.MaxStepOutput), "let it write to a file and print the path")
	case x.TimedOut:
		status, message, code = history.Failed, "timeout", timedOutCode
	case code != 0:
		status, message = history.Failed, x.Text()
	}
	if c.Once && (x.TimedOut || x.Signal != 0 || out.over) {
		status = history.OutcomeUnknown
		err = fmt.Errorf("%w: step %q: %s", history.ErrOutcome, c.Key.Value, message)
	}
	if out.over {
		out.Reset()
	}
	ended := s.End(ctx, status, out.Bytes(), code, message)
	if err == nil {
		err = ended
	}
	return out.Bytes(), code, err
}

// run runs the command.
func (c *runDoCmd) run(ctx context.Context, r *history.Run, s *history.Step) (x command.Exit, out *capped, err error) {
	out = &capped{most: history.MaxStepOutput}
	spec := command.Spec{Argv: c.Command, Stdin: os.Stdin, Stdout: out, Stderr: os.Stderr, Group: !command.AtTerminal(),
		Tree: s.Tree(), Timeout: c.timeout, Grace: command.Grace, Left: &command.Left{Trees: []string{s.Tree().Name()}},
		Env: append(os.Environ(), "THREAD_STEP_KEY="+r.ID()+":"+c.Key.Value)}
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, forwarded()...)
	defer signal.Stop(caught)
	p, err := command.Start(spec)
	if err != nil {
		return x, out, err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case s := <-caught:
				if passOn(s) {
					p.Forward(s)
				}
			case <-ended:
				return
			}
		}
	}()
	return p.Wait(ctx), out, nil
}

// capped keeps what is written, up to a bound.
type capped struct {
	bytes.Buffer
	most int
	over bool
}

func (c *capped) Write(b []byte) (int, error) {
	if c.over = c.over || c.Len()+len(b) > c.most; !c.over {
		c.Buffer.Write(b)
	}
	return len(b), nil
}

type runResolveCmd struct {
	cli.ThreadFlags
	RunID  cli.Text `arg:"" name:"run" help:"The id of the run."`
	Key    cli.Text `arg:"" name:"key" help:"The key of the step."`
	Done   bool     `help:"The step has happened."`
	Output cli.Text `placeholder:"FILE" help:"With --done, what the step printed, at most 1 MiB; - for stdin."`
	Again  bool     `help:"The step has not happened: run it again."`
}

var runResolveVerb = &cli.Verb{
	Name: "run resolve", Args: "<run> <key>", Summary: "Decide whether a step of unknown outcome has happened",
	Details: `A step of thread run do --once has an unknown outcome when its process died. Its run
has failed then, and no retry follows. After this, thread run requeue starts it again.`,
	Exits: "0 decided\n1 the outcome of the step is not unknown, or there is no such step",
	Examples: `thread run resolve --thread ./inbox "$R" charge --again
thread run resolve --thread ./inbox "$R" charge --done --output receipt.json && thread run requeue --thread ./inbox "$R"`,
	Errors: errorWords, Grammar: func() cli.Command { return new(runResolveCmd) },
}

func (c *runResolveCmd) Run(ctx context.Context, a *cli.App) (err error) {
	if c.Done == c.Again {
		return cli.UsageError("give either --done or --again", "look into the other system whether the step has happened")
	}
	if c.Output.Set && !c.Done {
		return cli.UsageError("--output is for --done", "add --done")
	}
	var output []byte
	if c.Output.Set {
		if output, err = fileOrStdin(a, c.Output.Value); err != nil {
			return err
		}
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		err := h.Resolve(ctx, c.RunID.Value, c.Key.Value, c.Done, output)
		switch {
		case errors.Is(err, history.ErrState):
			return cli.LogicError(err.Error(), "only a step whose outcome is unknown is decided, see thread run show "+cli.ShellWord(c.RunID.Value))
		case errors.Is(err, history.ErrInvalid):
			return cli.UsageError(err.Error(), "store it in a file, and give a file with its path")
		}
		return err
	})
}
