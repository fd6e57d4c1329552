package consume

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"thread/engine"
	"thread/internal/command"
	"thread/internal/redact"
)

// The environment of the command, next to the environment of this process. Variables of the event
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

var killedByInterrupt = command.KilledBy(syscall.SIGINT)

// exec runs the command once. code is -1 when it was killed. text says how it ended,
// and said that with the end of what it printed on stderr, if it did not exit with 0. Its trace
// is in its environment.
// The error wraps ErrCommand.
func (r *run) exec(d *engine.Delivery, turn Turn, traced traced) (code int64, text, said string, err error) {
	stderr, err := r.newStderr()
	if err != nil {
		return 0, "", "", fmt.Errorf("%w: %w", ErrCommand, err)
	}
	defer r.leave(stderr)
	spec := r.spec(turn, traced.environment(r.environment(d)))
	spec.Stdin, spec.Stdout, spec.Stderr = bytes.NewReader(r.input(d)), r.Stdout, stderr.Writer
	p, err := command.Start(spec)
	stderr.Started()
	if err != nil {
		return 0, "", "", fmt.Errorf("%w: %w", ErrCommand, err)
	}
	r.Signals.attach(p.Process)
	testPoint("running")
	until, over := r.until(turn, p)
	x := p.Wait(until)
	over()
	r.Signals.detach(p.Process)
	if x.Code != 0 {
		said = stderr.said(x.Text())
	}
	return int64(x.Code), x.Text(), said, nil
}

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	maxLineBytes = 1 << 20
	// endGrace is how long a worker may take to end once its stdin is closed, and
	// again once it was asked with SIGTERM.
	endGrace = 5 * time.Second
)

// spec is what the command and a worker have in common.
func (r *run) spec(turn Turn, env []string) command.Spec {
	s := command.Spec{Argv: r.Command, Env: env, Tree: r.Work, Grace: endGrace}
	if turn != nil {
		s.Env = append(s.Env, turn.Environment()...)
	}
	s.Group = turn != nil || r.Lost != nil
	return s
}

// until returns a context that ends when the delivery is to end: its turn is to, or without
// a turn the consumer may be another process's. As a command with a turn is in no group with
// this process, SIGTERM is passed on.
func (r *run) until(turn Turn, p *command.Process) (ctx context.Context, over func()) {
	ctx, cancel := context.WithCancel(context.Background())
	abort, came := r.Lost, (<-chan struct{})(nil)
	if turn != nil {
		abort, came = turn.Abort(), r.Signals.cameFirst()
	}
	if abort == nil {
		return ctx, cancel
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer cancel()
		for {
			select {
			case <-ctx.Done():
				return
			case <-abort:
				return
			case <-came:
				p.Pass(syscall.SIGTERM)
				came = nil
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-watched
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
	parent, request := e.Trace()
	if parent != "" {
		set("TRACEPARENT", parent)
	}
	if request != "" {
		set("THREAD_REQUEST_ID", request)
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
	why := brief(redact.Text(result.Error))
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
