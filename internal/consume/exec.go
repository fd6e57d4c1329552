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
// are set with Batch 1 only, and one whose value an environment cannot hold, as it has
// a NUL character or more than maxValueBytes, is left out.
const (
	envDir      = "THREAD_DIR"
	envConsumer = "THREAD_CONSUMER"
	envEvent    = "THREAD_EVENT_" // and ID, CREATED_AT, SOURCE, TYPE, SUBTYPE, ATTEMPT; and KEY, with any Batch
)

// maxValueBytes bounds a value in the environment. Linux starts no program with a longer
// one than twice that.
const maxValueBytes = 64 << 10

// stdinGrace is how long the rest of a long delivery is offered to what a command
// has left behind, once it has ended itself.
const stdinGrace = time.Second

var killedByInterrupt = killedBy(syscall.SIGINT)

func killedBy(s syscall.Signal) string { return "killed by signal: " + s.String() }

// exec runs the command once. code is -1 when it was killed. text says how it ended,
// and said that with the end of what it printed on stderr, if it did not exit with 0.
// The error wraps ErrCommand.
func (r *run) exec(d *engine.Delivery, turn Turn) (code int64, text, said string, err error) {
	stderr, err := r.newStderr()
	if err != nil {
		return 0, "", "", fmt.Errorf("%w: %w", ErrCommand, err)
	}
	defer r.leave(stderr)
	cmd := exec.Command(r.Command[0], r.Command[1:]...)
	cmd.Stdout, cmd.Stderr = r.Stdout, stderr.writer
	cmd.Env = r.environment(d)
	cmd.Stdin = bytes.NewReader(r.input(d))
	cmd.WaitDelay = stdinGrace
	if turn != nil {
		cmd.Env = append(cmd.Env, turn.Environment()...)
		ownGroup(cmd)
	}
	err = cmd.Start()
	stderr.started()
	if err != nil {
		return 0, "", "", fmt.Errorf("%w: %w", ErrCommand, err)
	}
	r.Signals.attach(cmd.Process)
	over := r.watch(turn, cmd.Process)
	testPoint("running")
	err = cmd.Wait()
	over()
	r.Signals.detach(cmd.Process)
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) && cmd.ProcessState == nil {
		return 0, "", "", fmt.Errorf("%w: %w", ErrCommand, err)
	}
	code = int64(cmd.ProcessState.ExitCode())
	text = "exit " + strconv.FormatInt(code, 10)
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		code, text = -1, killedBy(w.Signal())
	}
	if code != 0 {
		said = stderr.said(text)
	}
	return code, text, said, nil
}

// watch ends a process, with its group, when its turn is to end, until the returned
// function is called. As it is in no group with this process, SIGTERM is passed on.
func (r *run) watch(turn Turn, p *os.Process) (over func()) {
	if turn == nil {
		return func() {}
	}
	ended, all := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(all)
		came := r.Signals.cameFirst()
		if _, alone := turn.(lostTurn); alone {
			came = nil // what was begun is brought to its end
		}
		for ; ; came = nil {
			select {
			case <-ended:
				return
			case <-came:
				terminateGroup(p)
				continue
			case <-turn.Abort():
			}
			break
		}
		terminateGroup(p)
		grace := time.NewTimer(endGrace)
		defer grace.Stop()
		select {
		case <-ended:
		case <-grace.C:
		}
		killGroup(p) // the rest of it had its time, too
	}()
	return func() {
		close(ended)
		<-all
	}
}

// input is what the command reads: one line of JSON per event, or the content.
// What is behind each of several contents is there behind a single one of a batch,
// too: only without a batch a content is given as it is.
func (r *run) input(d *engine.Delivery) []byte {
	if r.ContentOnly && r.Batch == 1 {
		return []byte(d.Events[0].Content)
	}
	var b []byte
	for i := range d.Events {
		if r.ContentOnly {
			b = append(append(b, d.Events[i].Content...), r.Separator)
		} else {
			b = append(r.AppendEvent(b, &d.Events[i]), '\n')
		}
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
	for _, v := range []string{envDir + "=" + r.t.Address(), envConsumer + "=" + r.consumer} {
		if strings.IndexByte(v, 0) < 0 {
			env = append(env, v)
		}
	}
	return env
}

func (r *run) environment(d *engine.Delivery) []string {
	env := r.baseEnvironment()
	set := func(name, value string) {
		if strings.IndexByte(value, 0) < 0 && len(value) <= maxValueBytes {
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
	why := brief(result.Error)
	switch {
	case result.Verdict == engine.Deferred:
		return which + ": " + why + ", tried again later"
	case result.Verdict == engine.Returned:
		return which + ": " + why + ", called off"
	case len(d.Events) > 1:
		return which + ": " + why + ", split to find the event that fails"
	}
	return fmt.Sprintf("%s: %s at attempt %d", which, why, d.Attempt)
}

// brief is the first line of an error, cut to a length that a line of a log can have.
func brief(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:199]) + "…"
	}
	return s
}
