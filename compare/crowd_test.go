//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// member is one of several processes that work at once.
type member struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a worker and waits until it is ready.
func (l *lab) start(args ...string) (*member, error) {
	m := &member{cmd: exec.Command(l.self, append([]string{workerVerb}, args...)...)}
	m.cmd.Stderr = os.Stderr
	var err error
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.out = bufio.NewReader(out)
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := m.out.ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("worker %v did not start", args), m.cmd.Wait())
	}
	return m, nil
}

// pushers lets that many processes push at once, each n times, and returns what all
// of them saw.
func (l *lab) pushers(processes int, what, path string, n int) (o outcome, err error) {
	var all []*member
	for range processes {
		m, err := l.start(what, path, fmt.Sprint(n))
		if err != nil {
			return o, err
		}
		all = append(all, m)
	}
	start := time.Now()
	for _, m := range all {
		if _, err := io.WriteString(m.in, "go\n"); err != nil {
			return o, err
		}
	}
	for _, m := range all {
		var one outcome
		if err := errors.Join(json.NewDecoder(m.out).Decode(&one), m.cmd.Wait()); err != nil {
			return o, err
		}
		o.Took = append(o.Took, one.Took...)
		o.Failed += one.Failed
		if o.Error == "" {
			o.Error = one.Error
		}
	}
	o.All = time.Since(start)
	return o, nil
}

// crowd is what a push takes next to other pushing processes.
func (l *lab) crowd() error {
	for _, others := range []int{8, 16} {
		var ours, theirs outcome
		for range 3 { // in turn
			for _, side := range []struct {
				what, path string
				sum        *outcome
			}{{"push-thread", l.few, &ours}, {"push-sqlite", l.sqlite, &theirs}} {
				o, err := l.pushers(others+1, side.what, side.path, l.rounds/2)
				if err != nil {
					return err
				}
				if o.Failed > 0 {
					return fmt.Errorf("%s with %d others: %d failed: %s", side.what, others, o.Failed, o.Error)
				}
				side.sum.Took = append(side.sum.Took, o.Took...)
				side.sum.All += o.All
			}
		}
		l.ratio(fmt.Sprintf("p99 of a push next to %d other pushing processes", others), percentile(ours.Took, 99), percentile(theirs.Took, 99), "(C, FULL, busy_timeout)", 0.3)
		l.ratio(fmt.Sprintf("p50 of it, next to %d", others), percentile(ours.Took, 50), percentile(theirs.Took, 50), "(C)", 0)
		l.ratio("time until all have ended", ours.All, theirs.All, "(C)", 0)
	}
	return nil
}

// besideScan is what a push takes next to a process that reads everything for
// ever.
func (l *lab) besideScan() error {
	var alone, beside []time.Duration
	for range 3 {
		o, err := l.pushers(1, "push-thread", l.big, l.rounds)
		if err != nil || o.Failed > 0 {
			return errors.Join(err, fmt.Errorf("%d pushes failed: %s", o.Failed, o.Error))
		}
		alone = append(alone, o.Took...)
		scanner, err := l.start("scan", l.big)
		if err != nil {
			return err
		}
		o, err = l.pushers(1, "push-thread", l.big, l.rounds)
		if kerr := scanner.cmd.Process.Kill(); err == nil {
			err = kerr
		}
		scanner.cmd.Wait() // it was killed
		if err != nil || o.Failed > 0 {
			return errors.Join(err, fmt.Errorf("%d pushes failed: %s", o.Failed, o.Error))
		}
		beside = append(beside, o.Took...)
	}
	l.ratio(fmt.Sprintf("p50 of a push next to an endless scan of %s events, next to the same alone", thousands(l.events)), median(beside), median(alone), "(alone)", 2.5)
	l.ratio("p99 of it", percentile(beside, 99), percentile(alone, 99), "(alone)", 0)
	return nil
}
