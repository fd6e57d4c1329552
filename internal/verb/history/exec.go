package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"thread/history"
	"thread/internal/cli"
	"thread/internal/pipe"
)

// keptBytes is how much of a command's output is kept: the last so many bytes.
const keptBytes = 16 << 10

// killGrace is how long a command has to end after SIGTERM.
const killGrace = 10 * time.Second

// timedOutCode is the exit code of a command whose time was over, as of timeout(1).
const timedOutCode = 124

type commandFlags struct {
	Timeout  cli.Text `placeholder:"DURATION" help:"End CMD after that time; the run has timed out then, and the exit code is 124."`
	Every    cli.Text `placeholder:"DURATION" help:"How often the run says that it lives (default 5s, at least 50ms)."`
	NoOutput bool     `name:"no-output" help:"Keep none of what CMD prints, and leave it the terminal."`
	Command  []string `arg:"" optional:"" name:"cmd" help:"The program to run, and its arguments."`
}

type runExecCmd struct {
	newRun
	commandFlags
}

func runExecVerb() *cli.Verb {
	return &cli.Verb{
		Name: "run exec", Args: "-- CMD ARGS...", Summary: "Run a command as a recorded run",
		Details: `Records that the run starts, runs CMD, and records how it ended, how long it took and
the last 16 KiB that it printed. The exit code is that of CMD. Signals are passed
on. CMD finds THREAD_DIR, THREAD_RUN_ID and THREAD_SESSION_ID in its environment, so
that thread run step and thread message add in it need no flags. When this process
dies, thread run recover knows at once.`,
		Exits: "0 CMD has exited 0; otherwise its own exit code\n1 CMD cannot be started, or the run not recorded\n124 --timeout was over",
		Examples: `thread run exec --thread ./inbox --agent coder -- ./agent.sh "fix the tests"
thread run exec --thread ./inbox --timeout 10m -- make test`,
		Errors: errorWords, Grammar: func() cli.Command { return new(runExecCmd) },
	}
}

func (c *runExecCmd) Run(ctx context.Context, a *cli.App) error {
	if err := c.check("run exec"); err != nil {
		return err
	}
	job, err := c.job(a)
	if err != nil {
		return err
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		row, err := c.row(ctx, h)
		if err != nil {
			return err
		}
		row.BeatEvery = job.every.Milliseconds()
		r, err := h.StartRun(ctx, row, history.Supervised(), history.With(job.begin))
		if err != nil {
			return err
		}
		code, err := job.run(ctx, h, r)
		if err == nil && code != 0 {
			err = cli.Exited(code)
		}
		return err
	})
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

// run runs the command as the run r, which has begun, and ends it. It returns the
// exit code.
func (j *job) run(ctx context.Context, h *history.History, r *history.Run) (code int, err error) {
	row, err := r.Row(ctx)
	if err != nil {
		return 0, err
	}
	// A command outlives what is only this call's: its run is ended in any case.
	beating, stop := r.Beat(ctx, j.every)
	defer stop()
	cmd := exec.Command(j.command[0], j.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if !j.noOutput {
		cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &j.out), io.MultiWriter(os.Stderr, &j.out)
	}
	cmd.Env = environment(&row, j.a.Dir)
	cmd.WaitDelay = time.Second // for output that something left behind still holds open
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, forwarded()...)
	defer signal.Stop(caught)
	if err := cmd.Start(); err != nil {
		end := history.End{Status: history.Failed, ErrorCode: "not_started", ErrorMessage: err.Error(), Also: j.ended(history.Failed, -1)}
		return 0, errors.Join(cli.LogicError("cannot run "+j.command[0]+": "+err.Error(), "check the path and the mode of the command"), r.End(ctx, end))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	why, err := j.watch(beating, cmd, caught, ended)
	stop()
	return j.finish(ctx, h, r, cmd, why, err)
}

// watch waits for the end of the command, passes signals on, and ends it when its
// time is over or the run is to end. It returns why it ended the command, nil when it
// did not.
func (j *job) watch(beating context.Context, cmd *exec.Cmd, caught <-chan os.Signal, ended <-chan error) (why, err error) {
	var timeout, kill <-chan time.Time
	if j.timeout > 0 {
		timer := time.NewTimer(j.timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	done := beating.Done()
	end := func(cause error) {
		why, done, timeout = cause, nil, nil
		terminate(cmd.Process)
		kill = time.After(killGrace)
	}
	for {
		select {
		case err := <-ended:
			return why, err
		case s := <-caught:
			if passOn(s) {
				_ = cmd.Process.Signal(s) // it may have ended by now
			}
		case <-timeout:
			end(errTimedOut)
		case <-done:
			end(context.Cause(beating))
		case <-kill:
			_ = cmd.Process.Kill()
		}
	}
}

var errTimedOut = errors.New("its time is over")

// finish records how the command ended.
func (j *job) finish(ctx context.Context, _ *history.History, r *history.Run, cmd *exec.Cmd, why, err error) (int, error) {
	code, how := exitOf(cmd.ProcessState)
	end := history.End{Status: history.Completed}
	switch {
	case errors.Is(why, errTimedOut):
		end = history.End{Status: history.TimedOut, ErrorCode: "timeout", ErrorMessage: fmt.Sprintf("ended after %s", j.timeout)}
		code = timedOutCode
	case errors.Is(why, history.ErrCancelled):
		end = history.End{Status: history.Cancelled, ErrorCode: "cancelled", ErrorMessage: how}
	case code != 0:
		end = history.End{Status: history.Failed, ErrorCode: "exit", ErrorMessage: how}
		if last := lastLine(&j.out); last != "" {
			end.ErrorMessage += ": " + last
		}
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		j.a.LogWarning("run exec: %v", err)
	}
	end.Also = j.ended(end.Status, code)
	if err := r.End(ctx, end); err != nil {
		return code, err
	}
	return code, nil
}

// ended returns what stores the step anew, with its output.
func (j *job) ended(status string, code int) func(tx *history.Tx) error {
	return func(tx *history.Tx) error {
		text, cut := j.out.Text()
		output := map[string]any{"exit_code": code, "output": text, "output_bytes": j.out.Size()}
		if cut {
			output["truncated"] = true
		}
		b, err := marshal(output)
		if err != nil {
			return err
		}
		s := j.step
		s.Status, s.Output = status, b
		return tx.Put(&s)
	}
}

// marshal is json.Marshal that leaves < and & as they are.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// environment is that of this process, with what the command is to know of its run.
func environment(row *history.RunRow, dir string) []string {
	trace, request := history.TraceOf(row)
	set := [][2]string{{"THREAD_DIR", dir}, {envRun, row.ID}, {envAttempt, fmt.Sprint(row.Attempt)}, {envSession, row.SessionID},
		{"THREAD_RUN_TRIGGER_TYPE", row.TriggerType}, {"THREAD_RUN_TRIGGER_REF", row.TriggerRef}, {"THREAD_RUN_AGENT", row.EffectiveAgentName},
		{"THREAD_RUN_INITIATOR_REF", row.InitiatorRef}, {envTrace, trace}, {envRequest, request}}
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
