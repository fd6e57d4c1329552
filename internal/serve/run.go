package serve

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"thread/event"
	"thread/internal/dispatch"
	"thread/internal/socket"
	"thread/lane"
	"thread/lock"
)

// The handler's side of steering, in its environment.
const (
	envState    = dispatch.EnvState
	envMessages = dispatch.EnvMessages
)

// maxStateBytes is how much of the state file is looked at.
const maxStateBytes = 64

var errNotRead = errors.New("the handler does not read its messages")

func newRun(t *thread, consumer string) *run {
	return &run{t: t, dir: dispatch.RunDir(t.place, consumer), abort: make(chan struct{}), over: make(chan struct{})}
}

// leaveLane is called when the handler asks for the turns of its deliveries.
func (r *run) leaveLane() { r.disown() }

// setTurns puts one connection in the place of the one before.
func (r *run) setTurns(s *turns) {
	r.turnsMu.Lock()
	before := r.turns
	r.turns = s
	r.turnsMu.Unlock()
	if before != nil {
		before.conn.Close()
	}
}

// close ends the turns of the run.
func (r *run) close() {
	r.overOnce.Do(func() {
		close(r.over)
		if r.control != nil {
			r.control.Close()
		}
	})
	r.turnsMu.Lock()
	s := r.turns
	r.turnsMu.Unlock()
	if s != nil {
		s.conn.Close()
	}
}

// environment is what the handler finds of its run.
func (r *run) environment(runID string, first int64) []string {
	return append(r.steering(), r.t.s.opts.Tracer.Environment(context.Background(), r.t.t, runID, first)...)
}

// steering makes the two files. A handler runs also where that fails; then it cannot be
// sent messages.
func (r *run) steering() []string {
	state, pipe := filepath.Join(r.dir, "state"), filepath.Join(r.dir, "messages")
	err := os.RemoveAll(r.dir) // what a killed server left
	if err == nil {
		err = r.t.there() // a deleted thread is not brought back
	}
	if err == nil {
		err = os.MkdirAll(r.dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(state, nil, 0o600)
	}
	var messages *os.File
	if err == nil {
		messages, err = openPipe(pipe)
	}
	if err != nil {
		r.t.s.repeats.say(slog.LevelWarn, "the run cannot be sent messages", "thread", r.t.dir, "error", err)
		return nil
	}
	r.pipe.Lock()
	r.messages = messages
	r.pipe.Unlock()
	if r.t.remote != nil {
		r.listen()
	}
	return []string{envState + "=" + state, envMessages + "=" + pipe}
}

// listen answers at a socket of the run: several processes of this host may serve the thread.
func (r *run) listen() {
	l, err := socket.Replace(r.dir, controlSocket)
	if err != nil {
		r.t.s.repeats.say(slog.LevelWarn, "the deliveries of the run are in no lanes", "thread", r.t.dir, "error", err)
		return
	}
	r.control = l
	go accept(l, maxRequests, r.t.handleConn, refuseConn)
}

// begin starts the handler. A process that heard from it, and asks for the run, waits
// until it is known here.
func (r *run) begin(id string, start func() (pid int, err error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := time.Now()
	pid, err := start()
	if err != nil {
		return err
	}
	r.id, r.pid, r.at = id, pid, at
	return nil
}

// length is how long the handler has run, 0 when it could not be started.
func (r *run) length() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() {
		return 0
	}
	return time.Since(r.at)
}

// end is called when it has ended, and no other process can run it yet.
func (r *run) end() {
	r.pipe.Lock()
	defer r.pipe.Unlock()
	r.close()
	if r.messages != nil {
		own, err := lock.Names(filepath.Join(r.dir, "messages"), r.messages)
		r.messages.Close()
		r.messages = nil
		if !own && err == nil {
			return // another process of this host has the turn, and these are the files of its run
		}
	}
	os.RemoveAll(r.dir)
}

// wordIn returns what the state file in dir says.
func wordIn(dir string) string {
	f, err := openRegular(filepath.Join(dir, "state"))
	if err != nil {
		return ""
	}
	defer f.Close()
	buf := make([]byte, maxStateBytes)
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	n, _ := f.Read(buf)
	return strings.TrimSpace(string(buf[:n]))
}

func (r *run) deliver(message string) error {
	r.pipe.Lock()
	defer r.pipe.Unlock()
	switch {
	case r.messages == nil:
		return lane.NotStreaming
	case r.broken:
		return errNotRead
	}
	n, err := writeMessage(r.messages, message)
	if err != nil {
		r.broken = n > 0
		return errNotRead
	}
	return nil
}

func writeMessage(pipe *os.File, message string) (n int, err error) {
	pipe.SetWriteDeadline(time.Now().Add(deliverTime))
	return pipe.Write(append(event.AppendString(nil, message), '\n'))
}

// deliver writes a message into the pipe of the delivery's slot, which the handler has
// open.
func (d *delivery) deliver(message string) error {
	d.pipe.Lock()
	defer d.pipe.Unlock()
	if d.broken {
		return errNotRead
	}
	pipe, err := openToWrite(filepath.Join(d.dir, "messages"))
	if err != nil {
		return lane.NotStreaming
	}
	defer pipe.Close()
	n, err := writeMessage(pipe, message)
	if err != nil {
		d.broken = n > 0
		return errNotRead
	}
	return nil
}
