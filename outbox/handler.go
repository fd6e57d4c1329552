package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"thread/engine"
)

// The environment of a handler, beside that of the relay. Its stdin is the message,
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
	envRun     = "THREAD_RUN_ID" // set when a Recorder made one
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
func (r *relay) exec(command []string, d *delivery) (x execution, err error) {
	ctx, cancel := d.running, context.CancelFunc(func() {})
	if r.settings.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, r.settings.Timeout)
	}
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	out, stderr := &lastBytes{most: maxOutput}, &lastBytes{most: engine.MaxErrorBytes / 2}
	cmd.Stdout, cmd.Stderr = both(r.Stdout, out), both(r.Stderr, stderr)
	cmd.Env = r.environment(d)
	cmd.Stdin = strings.NewReader(d.payload + "\n")
	if err := cmd.Start(); err != nil {
		if d.running.Err() != nil {
			return execution{code: -1, cancelled: true}, nil
		}
		return x, err
	}
	reached("running")
	err = cmd.Wait()
	if cmd.ProcessState == nil {
		return x, err
	}
	x = execution{code: int64(cmd.ProcessState.ExitCode()), out: out.b, errors: stderr.b, timeout: errors.Is(ctx.Err(), context.DeadlineExceeded)}
	x.cancelled = d.running.Err() != nil
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		x.code, x.killed = -1, w.Signal() == syscall.SIGINT
	}
	return x, nil
}

func both(w io.Writer, t *lastBytes) io.Writer {
	if w == nil {
		return t
	}
	return io.MultiWriter(t, passOn{w})
}

// passOn writes for as long as somebody reads. That nobody does is no reason to end
// the handler by SIGPIPE.
type passOn struct{ io.Writer }

func (p passOn) Write(b []byte) (int, error) {
	_, _ = p.Writer.Write(b)
	return len(b), nil
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	most int
	b    []byte
}

func (t *lastBytes) Write(p []byte) (int, error) {
	if t.b = append(t.b, p...); len(t.b) > 2*t.most {
		t.b = append(t.b[:0], t.b[len(t.b)-t.most:]...)
	}
	return len(p), nil
}

func (r *relay) environment(d *delivery) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, envPrefix) && !strings.HasPrefix(v, envRun+"=") {
			env = append(env, v)
		}
	}
	env = append(env, r.Env...)
	for _, v := range [][2]string{
		{envDir, r.t.Dir()}, {envNumber, strconv.FormatInt(d.id, 10)}, {envEventID, d.message.EventID},
		{envType, d.message.EventType}, {envAttempt, strconv.FormatInt(d.attempt, 10)}, {envTrace, d.message.TraceID},
		{envHint, d.message.ActionHint}, {envRun, d.runID},
	} {
		if strings.IndexByte(v[1], 0) < 0 && (v[0] != envRun || v[1] != "") {
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

// The exit codes with a meaning of their own, from sysexits.h.
const (
	exitDataErr  = 65 // never again
	exitTempFail = 75 // again, and nothing is counted
)

// judge makes of an execution a receipt, and the engine's result.
func (r *relay) judge(x *execution) (Receipt, engine.Result) {
	receipt, next, found, err := lastReceipt(x.out)
	if x.code == 0 && err == nil && (!found || receipt.Status != Refused) {
		if !found {
			receipt = Receipt{Status: Accepted, Reason: "exit 0, without a receipt"}
		}
		return receipt, engine.Result{Verdict: engine.Succeeded}
	}
	text := x.problem(r.settings.Timeout)
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
		result.NotBefore = next
		if receipt.Reason != "" {
			text = receipt.Reason
		}
	}
	result.Error = text
	return Receipt{Status: Refused, Reason: text, RunID: receipt.RunID}, result
}
