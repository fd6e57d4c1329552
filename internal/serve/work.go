package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"thread/history"
	"thread/internal/dispatch"
	"thread/internal/watch"
	"thread/jsonlog"
)

// maxParallel bounds Work.Parallel.
const maxParallel = 1000

// check returns an error for work that cannot be.
func (w *Work) check() error {
	switch w.Strategy {
	case "", history.Fail, history.RequeueRunning, history.RequeueAll:
	default:
		return fmt.Errorf("strategy %q is none of fail, requeue_running, requeue_all", string(w.Strategy))
	}
	switch {
	case w.Parallel < 0 || w.Parallel > maxParallel:
		return fmt.Errorf("parallel is %d, not from 1 to %d", w.Parallel, maxParallel)
	case w.MaxAttempts < 0 || w.MaxAttempts > maxParallel:
		return fmt.Errorf("max_attempts is %d, not from 1 to %d", w.MaxAttempts, maxParallel)
	case w.Timeout != "":
		if d, err := time.ParseDuration(w.Timeout); err != nil || d <= 0 {
			return fmt.Errorf("timeout %q is not a duration, as 10m", w.Timeout)
		}
	}
	return nil
}

// recoverEvery is how often runs are looked at whose workers may be gone, and how often
// a ready run that no worker could take is tried again.
const recoverEvery = 3 * history.DefaultBeat

// startWorkers begins with a look at every thread.
func startWorkers(s *Server, only string) *workers {
	w := &workers{s: s, only: only, work: s.opts.Work, noticed: make(chan string, 64), ended: make(chan *shift), stop: make(chan struct{}),
		done: make(chan int, 1), threads: map[string]*worked{}, running: map[*shift]bool{}}
	if w.work.every == 0 {
		w.work.every = recoverEvery
	}
	if w.work.Parallel == 0 {
		w.work.Parallel = 1
	}
	if w.work.start == nil {
		w.work.start = w.startProgram
	}
	if w.work.Command != "" && only == "" {
		if dirs, err := watch.NewDirs(); err == nil {
			w.dirs = dirs
			go w.notices()
		} else {
			s.log.Warn("no file notices of histories: queued runs are started by the clock", "error", err)
		}
	}
	go w.loop()
	return w
}

// notices passes on which histories were written to.
func (w *workers) notices() {
	for {
		n, err := w.dirs.Next()
		if errors.Is(err, watch.ErrClosed) {
			return
		}
		if err != nil || n.Name != "events.jsonl" {
			continue // what is lost is found by the clock
		}
		select {
		case w.noticed <- filepath.Dir(n.Dir):
		case <-w.stop:
			return
		}
	}
}

func (w *workers) loop() {
	tick := time.NewTicker(w.work.every / 3)
	defer tick.Stop()
	w.lookAtAll()
	for {
		select {
		case <-w.stop:
			w.end()
			return
		case <-tick.C:
			w.lookAtAll()
		case dir := <-w.noticed:
			if t := w.threads[dir]; t != nil {
				w.claim(dir, t)
			}
		case e := <-w.ended:
			w.over(e)
			if t := w.threads[e.dir]; t != nil {
				t.idle = t.head == e.head // it has found nothing that it may take
				w.claim(e.dir, t)
			}
		}
	}
}

func (w *workers) lookAtAll() {
	served := map[string]bool{}
	for _, t := range w.s.all() {
		switch {
		case w.only == "" && t.local != nil:
			served[t.dir] = true
			w.look(t.dir)
		case w.only == t.dir:
			served[t.dir] = true
			w.lookURL()
		}
	}
	for dir, t := range w.threads {
		if !served[dir] && t.running == 0 {
			delete(w.threads, dir)
			if w.dirs != nil {
				w.dirs.Remove(filepath.Join(dir, history.Dir))
			}
		}
	}
}

// look recovers and claims in one thread, if it has a history.
func (w *workers) look(dir string) {
	at, size, err := watch.Written(filepath.Join(dir, history.Dir))
	if err != nil {
		return
	}
	t := w.threads[dir]
	if t == nil {
		t = &worked{}
		w.threads[dir] = t
	}
	if w.dirs != nil {
		_ = w.dirs.Add(filepath.Join(dir, history.Dir)) // without it, by the clock; it may be another directory by now
	}
	now := stamp{at, size}
	changed := now != t.stamp || time.Since(at) < mtimeGranularity
	t.stamp = now
	if time.Since(t.recovered) >= w.work.every && (changed || t.active || t.recovered.IsZero()) {
		w.recover(dir, t)
	}
	if changed || time.Since(t.tried) >= w.work.every {
		w.claim(dir, t)
	}
}

// lookURL is look by the clock alone.
func (w *workers) lookURL() {
	t := w.threads[w.only]
	if t == nil {
		t = &worked{}
		w.threads[w.only] = t
	}
	if time.Since(t.recovered) >= w.work.every {
		w.recover(w.only, t)
	}
	if w.work.Command != "" {
		w.claim(w.only, t)
	}
}

// open returns a handle for one look: one that stays would keep files open for each
// thread.
func (w *workers) open(dir string) *history.History {
	h, err := history.Open(context.Background(), dir, history.WithEngine(dispatch.OwnFile(dir)), history.WithLog(func(r history.Record) {
		w.s.log.Info(r.Event, append([]any{"thread", dir}, r.LogAttrs()...)...)
		if w.only == "" {
			_ = jsonlog.OpenLog(dir).Info("%s", r.LogLine()) // a log that cannot be written stops nothing
		}
	}))
	if err != nil {
		w.s.repeats.say(slog.LevelWarn, "history cannot be read", "thread", dir, "error", err)
		return nil
	}
	return h
}

// recover deals with the runs of workers that are gone.
func (w *workers) recover(dir string, t *worked) {
	h := w.open(dir)
	if h == nil {
		return
	}
	defer h.Close()
	o := history.RecoverOptions{Strategy: w.work.Strategy, MaxAttempts: w.work.MaxAttempts, Start: t.recovered.IsZero()}
	rows, err := h.Recover(context.Background(), o)
	t.recovered = time.Now()
	for i := range rows {
		r := &rows[i]
		w.s.log.Warn("run recovered", "thread", dir, "run_id", r.ID, "session_id", r.SessionID, "subject_ref", r.InitiatorRef,
			"agent_name", r.AgentName, "effective_agent_name", r.EffectiveAgentName, "status", r.Status, "error_code", r.ErrorCode)
	}
	if err != nil {
		w.s.repeats.say(slog.LevelWarn, "runs not recovered", "thread", dir, "error", err)
	}
}

// claim starts workers for runs that are ready, as many as may be at once. A worker takes
// its run itself; who finds none, because of a limit or of a worker from elsewhere, ends.
func (w *workers) claim(dir string, t *worked) {
	h := w.open(dir)
	if h == nil {
		return
	}
	ready, active, head, err := h.Waiting(context.Background())
	if err = errors.Join(err, h.Close()); err != nil {
		w.s.repeats.say(slog.LevelWarn, "history cannot be read", "thread", dir, "error", err)
		return
	}
	t.active = active > 0
	if w.work.Command == "" || t.idle && t.head == head && time.Since(t.tried) < w.work.every {
		return
	}
	t.head, t.tried = head, time.Now()
	for ; ready > 0 && t.running < w.work.Parallel; ready-- {
		p, err := w.work.start(dir)
		if err != nil {
			w.s.repeats.say(slog.LevelWarn, "worker not started", "thread", dir, "error", err)
			return
		}
		e := &shift{worker: p, dir: dir, head: head}
		w.running[e] = true
		t.running++
		go func() {
			e.err = e.Wait()
			w.ended <- e
		}()
	}
	t.idle = ready == 0 // what is left waits for the end of a worker
}

// over notes that a worker has ended.
func (w *workers) over(e *shift) {
	delete(w.running, e)
	if t := w.threads[e.dir]; t != nil {
		t.running--
	}
	if e.err != nil {
		w.s.repeats.say(slog.LevelWarn, "worker ended", "thread", e.dir, "error", e.err)
	}
}

// drain lets the workers that are at work come to their end, as handlers do, and then
// ends them. The channel tells how many even that has not ended.
func (w *workers) drain() <-chan int {
	close(w.stop)
	return w.done
}

// startAllWorkers starts workers of the directories and of each URL: a server that does not answer
// delays no other thread.
func (s *Server) startAllWorkers() {
	s.workers = append(s.workers, startWorkers(s, ""))
	for _, t := range s.all() {
		if t.remote != nil {
			s.workers = append(s.workers, startWorkers(s, t.dir))
		}
	}
}

// stopTime bounds the wait for handlers that are being ended, beyond the time that
// each of them has before it is killed.
const stopTime = 10 * time.Second

// end waits for the workers, no longer than handlers may continue.
func (w *workers) end() {
	if w.dirs != nil {
		w.dirs.Close()
	}
	for _, limit := range []time.Duration{w.s.opts.Drain, stopTime} {
		timer := time.NewTimer(limit)
		for waits := true; waits && len(w.running) > 0; {
			select {
			case e := <-w.ended:
				w.over(e)
			case <-timer.C:
				waits = false
			}
		}
		timer.Stop()
		for e := range w.running {
			e.End()
		}
	}
	left := len(w.running)
	w.done <- left
	for ; left > 0; left-- {
		<-w.ended // the process ends before
	}
}
