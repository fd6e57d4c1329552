package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"thread/history"
	"thread/internal/cli"
	"thread/internal/command"
	"thread/internal/pipe"
	"thread/internal/terminal"
)

// keptBytes is how much of a command's output is kept: the last that many bytes.
const keptBytes = 16 << 10

// The exit codes of a command whose time was over, as of timeout(1), and of one that could not
// be started, as of a shell.
const (
	timedOutCode      = 124
	notExecutableCode = 126
	notFoundCode      = 127
)

type commandFlags struct {
	Timeout  cli.Text `placeholder:"DURATION" help:"End CMD after that time; the run has timed out then, and the exit code is 124."`
	Every    cli.Text `placeholder:"DURATION" help:"How often the run says that it lives (default 5s, at least 50ms)."`
	NoOutput bool     `name:"no-output" help:"Keep none of what CMD prints, and leave it the terminal."`
	Command  []string `arg:"" optional:"" name:"cmd" help:"The program to run, and its arguments."`
}

type runExecCmd struct {
	newRun
	Wait bool `help:"Wait while another run of the session is active, in place of exit code 75."`
	commandFlags
}

var runExecVerb = &cli.Verb{
	Name: "run exec", Args: "-- CMD ARGS...", Summary: "Run a command as a recorded run",
	Details: `Records that the run starts, runs CMD, and records how it ended, how long it took and
the last 16 KiB that it printed. The exit code is CMD's. Signals are passed
on, and --timeout ends all that CMD has started. CMD finds THREAD_DIR, THREAD_RUN_ID and THREAD_SESSION_ID in its environment, so
that thread run step and thread message add in it need no flags. When this process
dies, thread run recover knows at once.`,
	Exits: "0 CMD has exited 0; otherwise its own exit code\n1 the run is refused, and CMD was not run; damage in the history is a warning, and CMD runs unrecorded\n75 with --session: another run of the session is active\n124 --timeout was over\n126 CMD cannot be run\n127 CMD is not found",
	Examples: `thread run exec --thread ./inbox --agent coder -- ./agent.sh "fix the tests"
thread run exec --thread ./inbox --timeout 10m -- make test`,
	Errors: errorWords, Grammar: func() cli.Command { return new(runExecCmd) },
}

func (c *runExecCmd) Run(ctx context.Context, a *cli.App) error {
	if err := c.check("run exec"); err != nil {
		return err
	}
	job, err := c.job(a)
	if err != nil {
		return err
	}
	r, err := c.begin(ctx, a, job)
	if err != nil && !a.Unrecorded(err) {
		return err
	}
	code, err := job.run(ctx, r)
	if err != nil || code == 0 {
		return err
	}
	return cli.Exited(code)
}

// begin starts the run in the history. It returns no run with an error.
func (c *runExecCmd) begin(ctx context.Context, a *cli.App, j *job) (r *history.Run, err error) {
	err = with(ctx, a, c.Thread, func(h *history.History) error {
		// Those that were queued are left to the strategy of their worker.
		if _, err := h.Recover(ctx, history.RecoverOptions{Start: true, NeverQueued: true}); err != nil {
			return err
		}
		row, err := c.row(ctx, h)
		if err != nil {
			return err
		}
		row.BeatEvery = j.every.Milliseconds()
		r, err = c.start(ctx, h, row, j)
		return err
	})
	return r, err
}

// start starts the run; with --wait it waits for its session.
func (c *runExecCmd) start(ctx context.Context, h *history.History, row history.RunRow, j *job) (*history.Run, error) {
	start := h.StartRun
	if c.Wait {
		start = h.StartRunWait
		var stop context.CancelFunc
		ctx, stop = cli.Interruptible(ctx)
		defer stop()
	}
	return start(ctx, row, history.Supervised(), history.With(j.begin))
}

func (c *commandFlags) check(verb string) error {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return cli.UsageError("no command is given", "add it behind --, for example thread "+verb+" -- ./agent.sh")
	}
	return nil
}

// job is a command that is run as a recorded run.
type job struct {
	a              *cli.App
	command        []string
	timeout, every time.Duration // 0: none, the default
	noOutput       bool

	step history.StepRow
	out  pipe.Tail

	// trace adds to the environment of the command; nil for nothing.
	trace func(ctx context.Context, row *history.RunRow) []string

	queued bool          // the run comes from the queue: it may have a result, and another time
	stdout pipe.Tail     // for the result
	answer string        // after a wait
	later  time.Duration // when the run is to be tried again, by its own word
}

func (c *commandFlags) job(a *cli.App) (j *job, err error) {
	j = &job{a: a, command: c.Command, noOutput: c.NoOutput, out: pipe.Tail{Most: keptBytes}}
	if c.Timeout.Set {
		if j.timeout, err = cli.ParseDuration("--timeout", c.Timeout.Value); err != nil {
			return nil, err
		}
	}
	if c.Every.Set {
		if j.every, err = cli.ParseDuration("--every", c.Every.Value); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// begin stores the step that holds the command, in the commit that starts the run.
func (j *job) begin(tx *history.Tx, row *history.RunRow) error {
	dir, err := os.Getwd()
	if err != nil {
		dir = ""
	}
	input, err := marshal(map[string]any{"argv": printableAll(j.command), "dir": dir, "attempt": row.Attempt})
	if err != nil {
		return err
	}
	j.step = history.StepRow{RunID: row.ID, StepType: "command", Name: valid(j.command[0]), AgentName: row.EffectiveAgentName, Status: history.Running, Input: input}
	return tx.Put(&j.step)
}

// valid returns the text as UTF-8, which a history holds.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func printableAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = valid(s)
	}
	return out
}

// run runs the command as the run r, which has begun, and ends it; without a run the command is
// not recorded. It returns the exit code.
func (j *job) run(ctx context.Context, r *history.Run) (code int, err error) {
	spec := command.Spec{Argv: j.command, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Group: !command.AtTerminal(), Timeout: j.timeout, Grace: command.Grace}
	beating, stop, row := ctx, func() {}, history.RunRow{}
	if r != nil {
		if row, err = retryBusy(func() (history.RunRow, error) { return r.Row(ctx) }); err != nil {
			return 0, j.refuse(ctx, r, err)
		}
		// A command outlives what is only this call's: its run is ended in any case.
		beating, stop = r.Beat(ctx, j.every)
		spec.Tree, spec.Left = r.Tree(), left(r, j.a.Dir)
	}
	defer stop()
	if err := j.asJob(ctx, r, &row, &spec); err != nil {
		return 0, j.refuse(ctx, r, err)
	}
	spec.Env = environment(&row, j.a.Dir, j.answer)
	if j.trace != nil && r != nil {
		spec.Env = append(spec.Env, j.trace(ctx, &row)...)
	}
	outputs, err := j.outputs(&spec)
	if err != nil {
		return 0, j.refuse(ctx, r, err)
	}
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, forwarded()...)
	defer signal.Stop(caught)
	p, err := command.Start(spec)
	for _, o := range outputs {
		o.Started()
	}
	if err != nil {
		return 0, j.refuse(ctx, r, err)
	}
	go func() {
		for s := range caught {
			if passOn(s) {
				p.Forward(s)
			}
		}
	}()
	x := p.Wait(beating)
	signal.Stop(caught)
	close(caught)
	stop()
	for _, o := range outputs {
		o.CatchUp()
	}
	code = j.finish(ctx, r, x)
	j.handOver(outputs)
	return code, nil
}

// left says by what the processes of the command are known.
func left(r *history.Run, dir string) *command.Left {
	if r.Tree() == nil {
		return nil // this host has no place for locks
	}
	return &command.Left{RunID: r.ID(), Dir: dir, Trees: []string{r.Tree().Name()}}
}

// outputs lets the command print into pipes, unless the terminal is left to it. A closed
// stdout ends the pipe of the command, and not this process.
func (j *job) outputs(spec *command.Spec) (list []*command.Output, err error) {
	if j.noOutput {
		return nil, nil
	}
	signal.Notify(make(chan os.Signal, 1), brokenPipe()...) // until the end of this process
	out, err := command.NewTee(&j.out, j.resultTo(os.Stdout))
	if err != nil {
		return nil, err
	}
	diagnostics, err := command.NewTee(&j.out, os.Stderr)
	if err != nil {
		out.Started()
		out.Close()
		return nil, err
	}
	spec.Stdout, spec.Stderr = out.Writer, diagnostics.Writer
	return []*command.Output{out, diagnostics}, nil
}

// handOver lets what the command has left behind continue printing.
func (j *job) handOver(outputs []*command.Output) {
	for i, o := range outputs {
		if err := o.HandOver([]*os.File{os.Stdout, os.Stderr}[i]); err != nil {
			j.a.LogWarning("run exec: what the command has left behind cannot print any more: %v", err)
		}
	}
}

// refuse ends the run of a command that could not be started. It returns the error with the exit
// code, as shells have it.
func (j *job) refuse(ctx context.Context, r *history.Run, err error) error {
	code := notExecutableCode
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = notFoundCode
	}
	j.end(ctx, r, history.End{Status: history.Failed, ErrorCode: "not_started", ErrorMessage: err.Error()}, code)
	return &cli.Failure{Code: code, What: "cannot run " + j.command[0] + ": " + err.Error(), Fix: "check the path and the mode of the command"}
}

// finish records how the command ended, and returns its exit code.
func (j *job) finish(ctx context.Context, r *history.Run, x command.Exit) int {
	end, code := history.End{Status: history.Completed}, x.Shell()
	j.later = j.laterOf(code)
	switch {
	case x.TimedOut:
		end = history.End{Status: history.TimedOut, ErrorCode: "timeout", ErrorMessage: fmt.Sprintf("ended after %s", j.timeout)}
		code = timedOutCode
	case errors.Is(x.Cause, history.ErrCancelled):
		end = history.End{Status: history.Cancelled, ErrorCode: "cancelled", ErrorMessage: x.Text()}
	case j.queued && code == waitingCode:
		end = history.End{Status: history.Waiting, ErrorCode: "exit", ErrorMessage: x.Text()}
	case j.queued && code == unknownCode:
		end = history.End{Status: history.Failed, ErrorCode: history.CodeOutcome, ErrorMessage: "the outcome of a step is unknown"}
	case j.later > 0:
		end = history.End{Status: history.Failed, ErrorCode: "later", ErrorMessage: x.Text(), Later: j.later}
	case code != 0:
		end = history.End{Status: history.Failed, ErrorCode: "exit", ErrorMessage: x.Text()}
		if last := lastLine(&j.out); last != "" {
			end.ErrorMessage += ": " + last
		}
	}
	j.end(ctx, r, end, code)
	return code
}

// end records the end of the run. What cannot be recorded now is a warning, as the exit code
// is the command's, and is kept for recovery.
func (j *job) end(ctx context.Context, r *history.Run, end history.End, code int) {
	if r == nil {
		return
	}
	step := j.step
	var err error
	if step.Output, err = j.output(code); err == nil {
		if step.Status = end.Status; step.Status == history.Waiting {
			step.Status = history.Completed // this attempt
		}
		end.Also = func(tx *history.Tx) error { s := step; return tx.Put(&s) }
		_, err = retryBusy(func() (struct{}, error) { return struct{}{}, r.End(ctx, end) })
	}
	if err == nil {
		return
	}
	later := ""
	if !errors.Is(err, history.ErrRecovered) && !errors.Is(err, history.ErrEnded) && !errors.Is(err, history.ErrNotFound) && r.Keep(end, &step) == nil {
		later = ", thread run recover records it later"
	}
	fmt.Fprintf(j.a.Stderr, "Warning: %s\n", terminal.Printable("the end of run "+r.ID()+" is not recorded"+later+": "+err.Error()))
}

// output is the output of the step, with what was printed.
func (j *job) output(code int) (json.RawMessage, error) {
	text, cut := j.out.Text()
	output := map[string]any{"exit_code": code, "output": text, "output_bytes": j.out.Size()}
	if cut {
		output["truncated"] = true
	}
	if j.queued && code == 0 {
		maps.Copy(output, history.ParseResult(lastOf(&j.stdout)))
	}
	return marshal(output)
}

// busyTries is how often a call is repeated when the history is busy, each time after the
// engine's own wait of some seconds.
const busyTries = 15

// marshal is json.Marshal that leaves < and & as they are.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// environment is the environment of this process, with what the command is to know of its run.
func environment(row *history.RunRow, dir, answer string) []string {
	trace, request := history.TraceOf(row)
	attempt := ""
	if row.ID != "" {
		attempt = fmt.Sprint(row.Attempt)
	}
	set := [][2]string{{"THREAD_DIR", dir}, {envRun, row.ID}, {envAttempt, attempt}, {envSession, row.SessionID},
		{"THREAD_RUN_TRIGGER_TYPE", row.TriggerType}, {"THREAD_RUN_TRIGGER_REF", row.TriggerRef}, {"THREAD_RUN_AGENT", row.EffectiveAgentName},
		{"THREAD_RUN_INITIATOR_REF", row.InitiatorRef}, {envTrace, trace}, {envRequest, request}, {"THREAD_ANSWER", answer}}
	var out []string
outer:
	for _, v := range os.Environ() {
		for _, s := range set {
			if strings.HasPrefix(v, s[0]+"=") {
				continue outer
			}
		}
		out = append(out, v)
	}
	for _, s := range set {
		if s[1] != "" && !strings.Contains(s[1], "\x00") {
			out = append(out, s[0]+"="+s[1])
		}
	}
	return out
}

// lastLine returns the last line that is not blank, cut to a length that a list can
// show.
func lastLine(t *pipe.Tail) string {
	text, _ := t.Text()
	text = strings.TrimSpace(text)
	text = strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	if r := []rune(text); len(r) > 200 {
		text = string(r[:199]) + "…"
	}
	return text
}
