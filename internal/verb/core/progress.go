package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/consume"
	"thread/internal/progress"
	"thread/internal/terminal"
)

// batchProgress shows on a terminal how far a batch from stdin is, and on an interruption
// says what stands. Elsewhere it returns drafts as they are.
func batchProgress(a *cli.App, drafts iter.Seq2[event.Draft, error]) (shown iter.Seq2[event.Draft, error], end func()) {
	if !terminal.IsTerminal(a.Stderr) {
		return drafts, func() {}
	}
	bar := terminal.NewBar(a.Stderr, "pushing")
	var read atomic.Bool
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	go func() {
		if _, ok := <-interrupted; !ok {
			return
		}
		// To end now is what the signal would have done. A batch is stored whole or not at
		// all, whenever that is.
		what := "nothing was stored"
		if read.Load() {
			what = "the batch is stored whole, or not at all; thread tail shows which"
		}
		fmt.Fprintf(a.Stderr, "\r\x1b[KInterrupted: %s\n", what)
		os.Exit(130)
	}()
	shown = func(yield func(event.Draft, error) bool) {
		defer read.Store(true)
		var n int64
		for d, err := range drafts {
			if n++; n%256 == 0 {
				bar.Set(n, estimate(a.Stdin, n))
			}
			if !yield(d, err) {
				return
			}
		}
	}
	return shown, func() {
		signal.Stop(interrupted)
		close(interrupted)
		bar.End()
	}
}

// longJob runs a job that can be ended. On a terminal it shows how far the job is, and
// after Ctrl-C says what stands. Elsewhere it only runs it.
func longJob(ctx context.Context, a *cli.App, stands string, job func(ctx context.Context) error) error {
	if !terminal.IsTerminal(a.Stderr) {
		return job(ctx)
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second Ctrl-C ends the program
	bar := terminal.NewBar(a.Stderr, "")
	err := job(progress.With(ctx, bar.Show))
	bar.End()
	if err == nil || ctx.Err() == nil {
		return err
	}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, engine.ErrBusy) {
		return err // another one, which says more
	}
	fmt.Fprintf(a.Stderr, "Interrupted: %s\n", stands)
	return cli.Exited(130)
}

// consumeProgress shows on a terminal how many events a run has handled, where its
// command's output goes elsewhere: nothing knows what a command writes on a terminal of
// its own. end takes the line off, and after Ctrl-C says what stands.
func consumeProgress(ctx context.Context, a *cli.App, t *engine.Thread, consumer string, o *consume.Options) (end func(consume.Summary)) {
	if !terminal.IsTerminal(a.Stderr) {
		return func(consume.Summary) {}
	}
	said := func(sum consume.Summary) {
		if ctx.Err() != nil {
			fmt.Fprintf(a.Stderr, "Interrupted: %d events are acked, %d are dead letters; the rest waits\n", sum.Delivered, sum.Dead)
		}
	}
	if terminal.IsTerminal(a.Out.W) {
		return said
	}
	bar := terminal.NewBar(a.Stderr, "consuming")
	o.Stderr = bar
	var total atomic.Int64
	counting, cancel := context.WithCancel(ctx)
	var counted sync.WaitGroup
	if o.Mode == consume.UntilEmpty {
		counted.Go(func() {
			if n, _, err := t.Backlog(counting, consumer); err == nil {
				total.Store(n)
			}
		})
	}
	o.Progress = func(sum consume.Summary) {
		done, all := sum.Delivered+sum.Dead, total.Load()
		if done > all { // more have come
			all = 0
		}
		bar.Set(done, all)
	}
	return func(sum consume.Summary) {
		cancel()
		counted.Wait()
		bar.End()
		said(sum)
	}
}

// estimate returns how many lines a file has when n of them are read, 0 when it is none.
func estimate(stdin io.Reader, n int64) int64 {
	f, ok := stdin.(*os.File)
	if !ok {
		return 0
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil || at <= 0 {
		return 0
	}
	return int64(float64(n) / float64(at) * float64(info.Size()))
}
