package consume

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"thread/engine"
)

// The environment of the command, beside that of this process. Those of the event
// are set with Batch 1 only, and one whose value has a NUL character, which an
// environment cannot hold, is left out.
const (
	envDir      = "THREAD_DIR"
	envConsumer = "THREAD_CONSUMER"
	envEvent    = "THREAD_EVENT_" // and ID, CREATED_AT, SOURCE, TYPE, SUBTYPE, ATTEMPT; and KEY, with any Batch
)

// stdinGrace is how long the rest of a long delivery is offered to what a command
// has left behind, once it has ended itself.
const stdinGrace = time.Second

var killedByInterrupt = killedBy(syscall.SIGINT)

func killedBy(s syscall.Signal) string { return "killed by signal: " + s.String() }

// exec runs the command once. code is -1 when it was killed. The error wraps
// ErrCommand.
func (r *run) exec(d *engine.Delivery) (code int64, text string, err error) {
	cmd := exec.Command(r.Command[0], r.Command[1:]...)
	cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
	cmd.Env = r.environment(d)
	cmd.Stdin = bytes.NewReader(r.input(d))
	cmd.WaitDelay = stdinGrace
	if err := cmd.Start(); err != nil {
		return 0, "", fmt.Errorf("%w: %w", ErrCommand, err)
	}
	r.Signals.attach(cmd.Process)
	testPoint("running")
	err = cmd.Wait()
	r.Signals.detach(cmd.Process)
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) && cmd.ProcessState == nil {
		return 0, "", fmt.Errorf("%w: %w", ErrCommand, err)
	}
	code = int64(cmd.ProcessState.ExitCode())
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return -1, killedBy(w.Signal()), nil
	}
	return code, "exit " + strconv.FormatInt(code, 10), nil
}

// input is what the command reads: one line of JSON per event, or the content.
func (r *run) input(d *engine.Delivery) []byte {
	if r.ContentOnly {
		return []byte(d.Events[0].Content)
	}
	var b []byte
	for i := range d.Events {
		b = append(d.Events[i].AppendJSON(b), '\n')
	}
	return b
}

// baseEnvironment is what every command finds.
func (r *run) baseEnvironment() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, envEvent) { // of an outer consume
			env = append(env, v)
		}
	}
	env = append(env, r.Env...)
	for _, v := range []string{envDir + "=" + r.t.Dir(), envConsumer + "=" + r.consumer} {
		if strings.IndexByte(v, 0) < 0 {
			env = append(env, v)
		}
	}
	return env
}

func (r *run) environment(d *engine.Delivery) []string {
	env := r.baseEnvironment()
	set := func(name, value string) {
		if strings.IndexByte(value, 0) < 0 {
			env = append(env, name+"="+value)
		}
	}
	if r.Key != "" {
		set(envEvent+"KEY", d.Key)
	}
	if r.Batch > 1 {
		return env
	}
	e := &d.Events[0]
	set(envEvent+"ID", strconv.FormatInt(e.ID, 10))
	set(envEvent+"CREATED_AT", e.CreatedAt)
	set(envEvent+"SOURCE", e.Source)
	set(envEvent+"TYPE", e.Type)
	if e.Subtype != nil {
		set(envEvent+"SUBTYPE", *e.Subtype)
	}
	set(envEvent+"ATTEMPT", strconv.FormatInt(d.Attempt, 10))
	return env
}

// describe says what became of a delivery that did not succeed.
func (r *run) describe(d *engine.Delivery, result engine.Result) string {
	first, last := d.Events[0].ID, d.Events[len(d.Events)-1].ID
	which := fmt.Sprintf("event %d", first)
	if len(d.Events) > 1 {
		which = fmt.Sprintf("events %d to %d (%d)", first, last, len(d.Events))
	}
	switch {
	case result.Verdict == engine.Deferred:
		return which + ": " + result.Error + ", tried again later"
	case result.Verdict == engine.Returned:
		return which + ": " + result.Error + ", called off"
	case len(d.Events) > 1:
		return which + ": " + result.Error + ", split to find the event that fails"
	}
	return fmt.Sprintf("%s: %s at attempt %d", which, result.Error, d.Attempt)
}
