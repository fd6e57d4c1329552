package trigger

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/command"
	"thread/internal/pipe"
)

// Question is what governance is asked about one message.
type Question struct {
	Source    string `json:"source"` // queue_trigger
	Queue     string `json:"queue"`
	MessageID string `json:"message_id"`
	TenantID  string `json:"tenant_id"`
	EventName string `json:"event_name"`

	Draft event.Draft `json:"-"` // the event that would be stored
}

// Answer is what governance says.
type Answer struct {
	Allow  bool   `json:"allow"`
	Reason string `json:"reason"`
}

// Governor decides about messages. An error means that it could not.
type Governor interface {
	Ask(ctx context.Context, q *Question) (Answer, error)
	Close() error
}

// newGovernor returns the governor of the configuration, nil when there is none.
func newGovernor(g *Governance, concurrency int, tree *os.File) (Governor, error) {
	switch {
	case g.Filter != "":
		f, err := filter.Compile(g.Filter)
		return &filterGovernor{f: f}, err
	case len(g.Command) > 0:
		return newCoprocesses(g, concurrency, tree), nil
	}
	return nil, nil
}

// filterGovernor lets in what a filter selects. The id and the time of an event
// that is not stored yet are not known: id is 0 and created_at is empty.
type filterGovernor struct{ f *filter.Filter }

func (g *filterGovernor) Ask(_ context.Context, q *Question) (Answer, error) {
	row := filter.Row{Source: q.Draft.Source, Type: q.Draft.Type, Content: q.Draft.Content}
	if q.Draft.Subtype != nil {
		row.Subtype, row.HasSubtype = *q.Draft.Subtype, true
	}
	ok, err := g.f.Matcher().Match(&row)
	if err != nil {
		return Answer{}, err
	}
	if !ok {
		return Answer{Reason: fmt.Sprintf("governance.filter %s does not select it", g.f.Text())}, nil
	}
	return Answer{Allow: true}, nil
}

func (g *filterGovernor) Close() error { return nil }

// coprocesses are as many copies of a program as questions are asked at once.
type coprocesses struct {
	free     chan *coprocess
	all      []*coprocess
	answered *atomic.Bool
}

func newCoprocesses(g *Governance, n int, tree *os.File) *coprocesses {
	all := &coprocesses{free: make(chan *coprocess, n), answered: new(atomic.Bool)}
	for range n {
		all.all = append(all.all, newCoprocess(g, tree, n == 1, all.answered))
	}
	for i := n - 1; i >= 0; i-- {
		all.free <- all.all[i]
	}
	return all
}

// Ask implements Governor.
func (c *coprocesses) Ask(ctx context.Context, q *Question) (Answer, error) {
	select {
	case p := <-c.free:
		defer func() { c.free <- p }()
		return p.Ask(ctx, q)
	case <-ctx.Done():
		return Answer{}, context.Cause(ctx)
	}
}

// Close implements Governor.
func (c *coprocesses) Close() (err error) {
	for _, p := range c.all {
		err = errors.Join(err, p.Close())
	}
	return err
}

// coprocess asks a program: one JSON object on a line of its stdin, one on its
// stdout for each, in the same order. It is started at the first question and again
// after it has ended, answered too late or said something else.
type coprocess struct {
	command []string
	timeout time.Duration
	tree    *os.File // see Options.Tree
	alone   bool     // no other copy holds tree
	// answered says that a copy has given an answer, in this run or in an earlier one.
	answered *atomic.Bool

	mu      sync.Mutex // one question at a time
	process *command.Process
	in      *os.File
	stdout  *os.File
	out     chan line // of stdout
}

type line struct {
	text []byte
	err  error
}

// ErrNoGovernor is wrapped by the errors of governance that cannot decide about any
// message: its program cannot be started, or has not given one answer yet.
var ErrNoGovernor = errors.New("no message is decided about")

var errNoStart = errors.New("it cannot be started")

// maxAnswerBytes bounds one line of an answer.
const maxAnswerBytes = 64 << 10

func newCoprocess(g *Governance, tree *os.File, alone bool, answered *atomic.Bool) *coprocess {
	return &coprocess{command: g.Command, timeout: time.Duration(g.Timeout * float64(time.Second)), tree: tree, alone: alone, answered: answered}
}

func (p *coprocess) start() error {
	stdin, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	stdout, writer, err := os.Pipe()
	if err != nil {
		in.Close()
		return err
	}
	defer writer.Close()
	spec := command.Spec{Argv: p.command, Stdin: stdin, Stdout: writer, Stderr: os.Stderr, Group: true, Tree: p.tree}
	// Left finds processes by the lock, and so every copy: of several, what one has started
	// elsewhere ends with the trigger.
	if p.tree != nil && p.alone {
		spec.Left = &command.Left{Trees: []string{p.tree.Name()}}
	}
	process, err := command.Start(spec)
	if err != nil {
		in.Close()
		stdout.Close()
		return err
	}
	p.process, p.in, p.stdout, p.out = process, in, stdout, make(chan line, 1)
	go func(to chan<- line) {
		defer close(to)
		lines := bufio.NewScanner(pipe.UntilStopped(stdout))
		lines.Buffer(nil, maxAnswerBytes)
		for lines.Scan() {
			to <- line{text: append([]byte(nil), lines.Bytes()...)}
		}
		err := lines.Err()
		if err == nil {
			err = errors.New("it ended")
		}
		to <- line{err: err}
	}(p.out)
	go func() {
		<-process.Ended()
		pipe.Stop(stdout) // what the program has left behind may have it open
	}()
	return nil
}

// stop ends the program and what it has started. Its reader is waited for, so that none is
// left behind.
func (p *coprocess) stop() {
	if p.process == nil {
		return
	}
	p.in.Close()
	p.process.Kill()
	for range p.out { // until its reader has ended
	}
	p.process.Wait(context.Background())
	p.stdout.Close()
	p.process = nil
}

// Ask implements Governor.
func (p *coprocess) Ask(ctx context.Context, q *Question) (a Answer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() {
		if err != nil {
			p.stop()
			err = fmt.Errorf("governance.command: %w", err)
			if !p.answered.Load() || errors.Is(err, errNoStart) {
				err = fmt.Errorf("%w: %w", ErrNoGovernor, err)
			}
		}
	}()
	if p.process != nil && len(p.out) > 0 {
		p.stop() // it has ended, or said more than it was asked
	}
	if p.process == nil {
		if err := p.start(); err != nil {
			return a, fmt.Errorf("%w: %w", errNoStart, err)
		}
	}
	ask, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	wrote := make(chan error, 1)
	go func(in io.Writer) {
		_, err := in.Write(append(ask, '\n'))
		wrote <- err
	}(p.in)
	for answered := false; !answered; {
		select {
		case <-ctx.Done():
			return a, fmt.Errorf("no answer within %s", p.timeout)
		case err := <-wrote:
			if err != nil {
				return a, err
			}
			wrote = nil
		case l := <-p.out:
			if l.err != nil {
				return a, l.err
			}
			var got struct {
				Allow  *bool
				Reason string
			}
			if err := json.Unmarshal(l.text, &got); err != nil || got.Allow == nil {
				return a, fmt.Errorf("the answer %.100q is not a JSON object with allow", l.text)
			}
			p.answered.Store(true)
			a, answered = Answer{*got.Allow, got.Reason}, true
		}
	}
	return a, nil
}

// Close implements Governor.
func (p *coprocess) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	return nil
}
