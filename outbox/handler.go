package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"thread/engine"
	"thread/internal/command"
	"thread/internal/pipe"
)

// The environment of a handler, next to the environment of the relay. Its stdin is the message,
// one line of JSON.
const (
	envPrefix  = "THREAD_OUTBOX_"
	envEventID = "THREAD_OUTBOX_EVENT_ID"    // event_id, for idempotency
	envType    = "THREAD_OUTBOX_EVENT_TYPE"  //
	envAttempt = "THREAD_OUTBOX_ATTEMPT"     // from 1
	envTrace   = "THREAD_OUTBOX_TRACE_ID"    //
	envHint    = "THREAD_OUTBOX_ACTION_HINT" // "" for none
	envNumber  = "THREAD_EVENT_ID"           // of the event in the thread
	envDir     = "THREAD_DIR"
	envRun     = "THREAD_RUN_ID"      // set when a Recorder made one
	envRunTry  = "THREAD_RUN_ATTEMPT" // of that run: 1
	envW3C     = "TRACEPARENT"        // as W3C Trace Context has it
	envRequest = "THREAD_REQUEST_ID"
)

// maxOutput is how much of the end of a handler's stdout the receipt is looked for in.
const maxOutput = 256 << 10

// stopGrace is how long a handler has after SIGTERM, and what it has left behind
// after its end.
const stopGrace = 5 * time.Second

// execution is how a handler ended.
type execution struct {
	code    int64 // -1: by a signal
	killed  bool  // by SIGINT, as a terminal sends it to all
	timeout bool

	cancelled bool
	out       []byte // the end of its stdout
	errors    []byte // the end of its stderr
}

// exec runs the handler once. The error says that it could not be started.
func (r *relay) exec(argv []string, d *delivery) (x execution, err error) {
	out, err := command.NewOutput(&pipe.Tail{Most: maxOutput}, r.Stdout)
	if err != nil {
		return x, err
	}
	defer out.Close()
	stderr, err := command.NewOutput(&pipe.Tail{Most: engine.MaxErrorBytes / 2}, r.Stderr)
	if err != nil {
		out.Started()
		return x, err
	}
	defer stderr.Close()
	spec := command.Spec{Argv: argv, Env: r.environment(d), Stdin: strings.NewReader(d.payload + "\n"), Stdout: out.Writer, Stderr: stderr.Writer,
		Group: !command.AtTerminal(), Tree: r.Work, Timeout: d.plan.agent.timeout, Grace: stopGrace}
	if r.Work != nil {
		spec.Left = &command.Left{RunID: d.runID, Dir: r.t.Address(), Trees: []string{r.Work.Name()}}
	}
	if d.running.Err() != nil {
		out.Started()
		stderr.Started()
		return execution{code: -1, cancelled: true}, nil
	}
	p, err := command.Start(spec)
	out.Started()
	stderr.Started()
	if err != nil {
		return x, err
	}
	reached("running")
	go func() {
		select {
		case <-r.Lost:
			p.Kill()
		case <-p.Ended():
		}
	}()
	e := p.Wait(d.running)
	out.CatchUp()
	stderr.CatchUp()
	return execution{code: int64(e.Code), killed: e.Signal == syscall.SIGINT, timeout: e.TimedOut, cancelled: e.Cause != nil && !e.TimedOut,
		out: out.Tail.Bytes(), errors: stderr.Tail.Bytes()}, nil
}

func (r *relay) environment(d *delivery) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(v, envPrefix) && !slices.Contains([]string{envRun, envRunTry, envW3C, envRequest}, name) {
			env = append(env, v)
		}
	}
	env = append(env, r.Env...)
	try := ""
	if d.runID != "" {
		try = "1"
	}
	for _, v := range [][2]string{
		{envDir, r.t.Address()}, {envNumber, strconv.FormatInt(d.id, 10)}, {envEventID, d.message.EventID},
		{envType, d.message.EventType}, {envAttempt, strconv.FormatInt(d.attempt, 10)}, {envTrace, d.message.TraceID},
		{envHint, d.message.ActionHint}, {envRun, d.runID}, {envRunTry, try}, {envW3C, d.message.traceparent()}, {envRequest, d.message.requestID()},
	} {
		if strings.IndexByte(v[1], 0) < 0 && (v[1] != "" || v[0] != envRun && v[0] != envRunTry) {
			env = append(env, v[0]+"="+v[1])
		}
	}
	return env
}

// problem says in one line why an execution has failed.
func (x *execution) problem(timeout time.Duration) string {
	text := "exit " + strconv.FormatInt(x.code, 10)
	switch {
	case x.cancelled:
		text = "its run was cancelled"
	case x.timeout:
		text = fmt.Sprintf("ended after the timeout of %v", timeout)
	case x.code < 0:
		text = "killed by a signal"
	}
	said := bytes.TrimSpace(x.errors)
	if most := engine.MaxErrorBytes / 2; len(said) > most {
		said = said[len(said)-most:]
		for len(said) > 0 && !utf8.RuneStart(said[0]) {
			said = said[1:]
		}
	}
	if len(said) > 0 {
		text += ": " + string(said)
	}
	return text
}

// The exit codes with a separate meaning, from sysexits.h.
const (
	exitDataErr  = 65 // never again
	exitTempFail = 75 // again, and nothing is counted
)

// judge makes of an execution a receipt, and the engine's result.
func (r *relay) judge(d *delivery, x *execution) (Receipt, engine.Result) {
	receipt, next, found, err := lastReceipt(x.out)
	if x.code == 0 && err == nil && (!found || receipt.Status != Refused) {
		if !found {
			receipt = Receipt{Status: Accepted, Reason: "exit 0, without a receipt"}
		}
		return receipt, engine.Result{Verdict: engine.Succeeded}
	}
	text := x.problem(d.plan.agent.timeout)
	result := engine.Result{Verdict: engine.Failed, ExitCode: x.code}
	switch {
	case x.code == exitDataErr, x.cancelled:
		result.Verdict = engine.Rejected
	case x.code == exitTempFail:
		result.Verdict = engine.Deferred
	}
	switch {
	case err != nil:
		text = err.Error()
	case found && receipt.Status == Refused:
		if next.After(r.now()) { // a time that has ended leaves it to the back-off
			result.NotBefore = next
		}
		if receipt.Reason != "" {
			text = receipt.Reason
		}
	}
	result.Error = text
	return Receipt{Status: Refused, Reason: text, RunID: receipt.RunID}, result
}

// noHandler is the error of a message that should run a handler when there is none.
const noHandler = "no handler is set: see thread outbox config --handler"

// trigger runs the handler.
func (r *relay) trigger(ctx context.Context, d *delivery) (result engine.Result, err error) {
	m := &d.message
	command := r.Command
	if len(command) == 0 && d.plan.agent.handler != "" {
		command = []string{"sh", "-c", d.plan.agent.handler}
	}
	if len(command) == 0 && r.run == nil {
		r.Log(true, "outbox: event_id=%s trace_id=%s: %s", m.EventID, m.TraceID, noHandler)
		return engine.Result{Verdict: engine.Deferred, ExitCode: -1, Error: noHandler}, nil
	}
	d.running = context.WithoutCancel(ctx)
	if r.Recorder != nil && r.settings.RecordRuns {
		d.running, d.runID, err = r.Recorder.Begin(d.running, Run{TriggerType: "message", TriggerRef: m.EventID, Initiator: m.ActorUserID.String(),
			TraceID: m.TraceID, Traceparent: m.traceparent(), RequestID: m.requestID(),
			ThreadID: m.ThreadID.String(), Agent: d.plan.agent.name, Attempt: d.attempt, Message: json.RawMessage(d.payload)})
		if err != nil {
			text := "its run could not be started: " + err.Error()
			r.Log(true, "outbox: event_id=%s trace_id=%s: %s", m.EventID, m.TraceID, text)
			return engine.Result{Verdict: engine.Deferred, ExitCode: -1, Error: text}, nil
		}
	}
	run := r.run
	if run == nil {
		run = func(d *delivery) (execution, error) { return r.exec(command, d) }
	}
	x, err := run(d)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrCommand, err)
		if d.runID != "" {
			err = errors.Join(err, r.Recorder.End(context.WithoutCancel(ctx), d.runID, RunEnd{Receipt: Receipt{Status: Refused, Reason: err.Error()}, ExitCode: -1}))
		}
		return result, err
	}
	receipt, result := r.judge(d, &x)
	receipt.Reason = strings.ToValidUTF8(receipt.Reason[:min(len(receipt.Reason), maxReason)], "\uFFFD")
	if x.killed && ctx.Err() != nil { // the terminal's Ctrl-C, which was meant for the relay
		result = engine.Result{Verdict: engine.Returned}
		receipt = Receipt{Status: Refused, Reason: "called off"}
	}
	if d.runID != "" {
		d.externalRunID, receipt.RunID = receipt.RunID, &d.runID
		if err := r.Recorder.End(context.WithoutCancel(ctx), d.runID, RunEnd{Receipt: receipt, ExternalRunID: d.externalRunID, ExitCode: x.code, Output: x.out, Errors: x.errors,
			Cancelled: x.cancelled, TimedOut: x.timeout}); err != nil {
			r.Log(true, "outbox: event_id=%s trace_id=%s: the end of run %s could not be recorded: %v", m.EventID, m.TraceID, d.runID, err)
		}
	}
	if result.Verdict != engine.Returned {
		d.receipt = &receipt
	}
	runID := ""
	if receipt.RunID != nil {
		runID = *receipt.RunID
	}
	r.Log(receipt.Status == Refused, "outbox: event_id=%s type=%s trace_id=%s attempt=%d status=%s reason=%q run_id=%s", m.EventID, m.EventType, m.TraceID,
		d.attempt, receipt.Status, receipt.Reason, runID)
	return result, nil
}
