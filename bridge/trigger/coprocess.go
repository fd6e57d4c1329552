package trigger

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// coprocess asks a program: one JSON object on a line of its stdin, one on its
// stdout for each, in the same order. It is started at the first question and again
// after it has ended, answered too late or said something else.
type coprocess struct {
	command []string
	timeout time.Duration

	mu  sync.Mutex // one question at a time
	cmd *exec.Cmd
	in  io.WriteCloser
	out chan line
}

type line struct {
	text []byte
	err  error
}

// maxAnswerBytes bounds one line of an answer.
const maxAnswerBytes = 64 << 10

func newCoprocess(g *Governance) *coprocess {
	return &coprocess{command: g.Command, timeout: time.Duration(g.Timeout * float64(time.Second))}
}

func (p *coprocess) start() error {
	p.cmd = exec.Command(p.command[0], p.command[1:]...)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return err
	}
	p.in, p.out = in, make(chan line, 1)
	go func(to chan<- line) {
		defer close(to)
		lines := bufio.NewScanner(out)
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
	return nil
}

// stop ends the program. Its reader is waited for, so that none is left behind.
func (p *coprocess) stop() {
	if p.cmd == nil {
		return
	}
	p.in.Close()
	_ = p.cmd.Process.Kill() // it may have ended
	for range p.out {        // until its reader has ended
	}
	_ = p.cmd.Wait()
	p.cmd = nil
}

// Ask implements Governor.
func (p *coprocess) Ask(ctx context.Context, q *Question) (a Answer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() {
		if err != nil {
			p.stop()
			err = fmt.Errorf("governance.command: %w", err)
		}
	}()
	if p.cmd != nil && len(p.out) > 0 {
		p.stop() // it has ended, or said more than it was asked
	}
	if p.cmd == nil {
		if err := p.start(); err != nil {
			return a, err
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
				return a, fmt.Errorf("the answer %.100q is no JSON object with allow", l.text)
			}
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
