package dispatch

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"thread/engine"
	"thread/internal/command"
	"thread/internal/programs"
)

const notifierCommand = "notifier"

// notifierLimit bounds the call of notifier. It is not the push that waits.
var notifierLimit = 2 * time.Second

// Wake sees to it that the handlers are started after a push. A server
// that serves the thread is told, which takes one datagram. Without one, Wake
// starts one detached process that dispatches, tells notifier as the environment
// variable THREAD_DISPATCH says, and waits for what is scheduled soon; Wake
// returns at once. source is the source of the last event pushed. The error says that
// nothing could be started; it is logged, and the event is stored nevertheless. It
// is an OwnerError where this account may start nothing, and where a dispatch
// before could start nothing for what still is so.
//
// Call it only when the thread has a subscription, else WakeUnsubscribed.
func Wake(ctx context.Context, t *engine.Thread, source string) error {
	if t.URL() != "" {
		return nil // who waits for events there was told by the store
	}
	r := newDispatcher(t, Options{})
	if os.Getenv(envDispatch) == wakeNone || r.ping(pingPush, r.author()) {
		return nil
	}
	var notify []string
	how, known := wakeMode()
	if how == wakeNotifier {
		// No argument of a program has a NUL in it.
		notify = []string{"-author", strings.ReplaceAll(source, "\x00", "\uFFFD")}
	}
	if !known {
		r.log.Warn("push: %s=%s is not auto, notifier, spawn or none: dispatching", envDispatch, os.Getenv(envDispatch))
	}
	err := r.startDispatch(notify...)
	if err == nil {
		err = r.trouble()
	}
	if err != nil {
		r.log.Warn("push: no dispatch: %v", err)
	}
	return err
}

// StartsNobody reports whether Wake does nothing in this environment.
func StartsNobody() bool { return os.Getenv(envDispatch) == wakeNone }

// WakeUnsubscribed is Wake for a thread that has no subscription. No handler has to
// be started, but notifier, where that is the way, gets its task for every push.
func WakeUnsubscribed(ctx context.Context, t *engine.Thread, source string) error {
	if how, _ := wakeMode(); how != wakeNotifier || t.URL() != "" {
		return nil
	}
	err := Wake(ctx, t, source)
	if foreign := (*OwnerError)(nil); errors.As(err, &foreign) {
		return nil // nothing was to be started
	}
	return err
}

// WakeServer asks the thread's server, if there is one, to look at what is due: a consumer
// that was paused or unsubscribed leaves its lane. It starts nothing.
func WakeServer(t *engine.Thread) {
	if t.URL() == "" {
		newDispatcher(t, Options{}).ping(pingLook, "")
	}
}

// wakeMode returns which of the ways THREAD_DISPATCH means here; an unknown one is
// taken for spawn.
func wakeMode() (how string, known bool) {
	switch how = os.Getenv(envDispatch); how {
	case wakeNotifier, wakeSpawn, wakeNone:
		return how, true
	case "", wakeAuto:
		if _, err := exec.LookPath(notifierCommand); err == nil {
			return wakeNotifier, true
		}
		return wakeSpawn, true
	}
	return wakeSpawn, false
}

// wake is the process that Wake starts: a supervisor that looks, however long
// others hold the thread, and tells notifier meanwhile. What notifier answers decides
// nothing: it may take a task and never run it, or have one that has made its look
// already. The locks see to it that each handler is started once.
//
// author is the source of the push, "" where notifier is not to be told.
func (s *supervisor) wake(ctx context.Context, author string) error {
	told := make(chan struct{})
	go func() {
		defer close(told)
		if author != "" {
			s.notify(ctx, author)
		}
	}()
	var kept sync.WaitGroup
	var err error
	if !s.ping(pingPush, s.author()) {
		s.looked = func() { kept.Go(func() { s.retain(ctx) }) }
		err = s.work(ctx)
	}
	<-told
	kept.Wait()
	if err != nil {
		s.noteTrouble(err)
		return err
	}
	if s.trouble() == nil {
		_ = os.Remove(s.troublePath()) // it was mended
	}
	return s.awaitScheduled(ctx)
}

// retain drops what the thread is not to keep, and files of unsubscribed consumers. It is nothing that a handler waits for,
// and comes after the look.
func (s *supervisor) retain(ctx context.Context) {
	if err := Retain(ctx, s.t); err != nil {
		s.log.Warn("retain: %v", err)
	}
	if err := Forget(ctx, s.t); err != nil {
		s.log.Warn("files of unsubscribed consumers: %v", err)
	}
}

// Retain is the thread's Retain, where it has something to do: most often one read tells
// that it has not. That others are at it is not an error.
func Retain(ctx context.Context, t *engine.Thread) error {
	due, err := t.RetainDue(ctx)
	if due && err == nil {
		_, err = t.Retain(ctx)
	}
	if errors.Is(err, engine.ErrBusy) {
		err = nil // the next push sees to it
	}
	return err
}

// Forget removes the files of consumers that were unsubscribed a week ago, once a day.
func Forget(ctx context.Context, t *engine.Thread) error {
	if t.URL() != "" {
		return nil
	}
	err := newDispatcher(t, Options{}).forget(ctx, time.Now())
	if errors.Is(err, engine.ErrBusy) {
		err = nil // it can wait a day
	}
	return err
}

// forget removes the files of consumers in run/ and logs/ a week after they were unsubscribed.
// It looks once a day.
func (r *dispatcher) forget(ctx context.Context, now time.Time) error {
	looked := filepath.Join(r.run, ".forgotten")
	if info, err := os.Stat(looked); err == nil && now.Sub(info.ModTime()).Abs() < forgetEvery {
		return nil
	}
	if errors.Join(replaceFile(looked, nil), os.Chtimes(looked, now, now)) != nil {
		return nil // in a directory of another account, say; the files can stay
	}
	subscribed, err := r.subscribedNames(ctx)
	if err != nil {
		return err
	}
	var forgotten []string
	for _, name := range r.consumerFiles() {
		gone := filepath.Join(r.run, name+goneEnding)
		info, err := os.Lstat(gone)
		switch {
		case subscribed[strings.ToLower(name)]:
			_ = os.Remove(gone) // mostly there is none
		case err != nil:
			if errors.Join(replaceFile(gone, nil), os.Chtimes(gone, now, now)) != nil {
				return nil
			}
		case now.Sub(info.ModTime()) >= keepUnsubscribed && r.remove(name):
			forgotten = append(forgotten, name)
		}
	}
	if subscribed, err = r.subscribedNames(ctx); err != nil {
		return err
	}
	again := func(name string) bool { return subscribed[strings.ToLower(name)] }
	if slices.ContainsFunc(forgotten, again) {
		return Wake(ctx, r.t, "") // a dispatch may have met the locks
	}
	return nil
}

// notify tells notifier of a dispatch.
func (r *dispatcher) notify(ctx context.Context, author string) {
	said, err := addTask(ctx, author, r.t.Dir())
	var failed *exec.ExitError
	switch {
	case err == nil:
		r.log.Info("push: notifier task add exit=0")
	case errors.As(err, &failed) && failed.ExitCode() == 1 && strings.Contains(said, "already exists"):
		r.log.Info("push: notifier task add exit=1 (already exists)")
	default:
		r.log.Warn("push: notifier task add: %v: %s", err, said)
	}
}

// addTask calls notifier with the arguments that its clients use and returns what it
// printed, cut to saidBytes.
func addTask(ctx context.Context, author, dir string) (said string, err error) {
	limited, cancel := context.WithTimeout(ctx, notifierLimit)
	defer cancel()
	cmd := exec.CommandContext(limited, notifierCommand, "task", "add", "--author", author,
		"--task-id", TaskID(dir), "--command", "thread dispatch --thread "+programs.ShellWord(dir))
	var out limitedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	detach(cmd)
	leaveRun(cmd) // a daemon that it starts is an orphan of no handler
	cmd.Cancel = func() error { killGroup(cmd); return nil }
	// A child of notifier that keeps the pipe open is not waited for.
	cmd.WaitDelay = 100 * time.Millisecond
	if err = command.StartOwn(cmd); err == nil {
		err = waitChild(cmd)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it had exited with 0
	}
	if limited.Err() != nil && err != nil {
		err = fmt.Errorf("no answer within %v", notifierLimit)
	}
	return strings.TrimSpace(out.kept.String()), err
}

// limitedBuffer keeps the first saidBytes of what is written to it. It has no other method of
// bytes.Buffer: io.Copy would call ReadFrom, which keeps everything.
type limitedBuffer struct{ kept bytes.Buffer }

const saidBytes = 1 << 10

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), saidBytes-b.kept.Len())])
	return len(p), nil
}

// TaskID returns notifier's id for the dispatch of the thread at the absolute
// path dir (T-55): every UTF-16 unit that is not an ASCII letter or digit
// becomes '-', and a slug of more than 40 units is cut to 32, followed by '-' and
// six digits of the path's SHA-1.
func TaskID(dir string) string {
	units := utf16.Encode([]rune(dir))
	slug := make([]byte, len(units))
	for i, u := range units {
		switch {
		case u >= 'a' && u <= 'z', u >= 'A' && u <= 'Z', u >= '0' && u <= '9':
			slug[i] = byte(u)
		default:
			slug[i] = '-'
		}
	}
	if len(slug) > 40 {
		return fmt.Sprintf("dispatch-%s-%x", slug[:32], sha1.Sum([]byte(dir)))[:len("dispatch-")+32+1+6]
	}
	return "dispatch-" + string(slug)
}

// ErrServed says that another server has the thread.
var ErrServed = errors.New("another process serves it")
