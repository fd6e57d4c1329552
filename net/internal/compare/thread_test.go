package main

import (
	"context"
	"time"

	"thread/engine"
	"thread/event"
	"thread/net/servers"
)

// thread is a thread with one consumer.
type thread struct {
	url      string
	t, other *engine.Thread // of two processes, as far as the server can tell
	feed     *engine.Feed
	last     *engine.Result // of the event that feed gave out
	done     int64
}

const consumer = "worker"

func newThread(ctx context.Context, url string) (*thread, error) {
	if err := (servers.Servers{}).Init(ctx, url); err != nil {
		return nil, err
	}
	h := thread{url: url}
	for _, t := range []**engine.Thread{&h.t, &h.other} {
		var err error
		if *t, err = h.open(); err != nil {
			return nil, err
		}
	}
	h.feed = h.t.Feed(consumer, engine.Policy{MaxAttempts: 3})
	return &h, h.t.Subscribe(ctx, engine.Subscription{Consumer: consumer, Handler: "true", Filter: event.Text("type = 'order'")})
}

func (h *thread) open() (*engine.Thread, error) {
	return (servers.Servers{}).Open(h.url, []engine.Option{engine.WithKeepOpen()})
}

func draft() event.Draft { return event.Draft{Source: "shop", Type: "order", Content: content} }

func (h *thread) push(ctx context.Context) error { return pushDraft(ctx, h.t) }

func pushDraft(ctx context.Context, t *engine.Thread) error {
	_, err := t.Push(ctx, draft())
	return err
}

func (h *thread) another(context.Context) (push func(ctx context.Context) error, end func(), err error) {
	t, err := h.open()
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error { return pushDraft(ctx, t) }, func() { _ = t.Close() }, nil
}

func (h *thread) pushBatch(ctx context.Context, n int) error {
	drafts := make([]event.Draft, n)
	for i := range drafts {
		drafts[i] = draft()
	}
	_, err := h.t.PushBatch(ctx, drafts)
	return err
}

// pop settles what the pop before has given out, as its caller would.
func (h *thread) pop(ctx context.Context, n int) (count int, err error) {
	if h.last != nil {
		if _, err := h.feed.Settle(ctx, *h.last); err != nil {
			return 0, err
		}
		h.last = nil
	}
	page, err := h.t.Pop(ctx, consumer, engine.PopQuery{LastAcked: h.done, Limit: int64(n)})
	if err != nil {
		return 0, err
	}
	for e, err := range page.Events {
		if err != nil {
			return count, err
		}
		h.done, count = e.ID, count+1
	}
	return count, nil
}

// work settles the event before in the transaction that takes the next one.
func (h *thread) work(ctx context.Context) (bool, error) {
	d, err := h.feed.Next(ctx, h.last)
	h.last = nil
	if err != nil || len(d.Events) == 0 {
		return false, err
	}
	h.done, h.last = d.Events[0].ID, &engine.Result{Verdict: engine.Succeeded}
	return true, nil
}

func (h *thread) waiting(ctx context.Context) (bool, error) {
	d, err := h.t.DueFor(ctx, consumer, 0)
	return d.First > 0, err
}

func (h *thread) wake(ctx context.Context) (time.Duration, error) {
	info, err := h.other.Info(ctx)
	if err != nil {
		return 0, err
	}
	return wakeOf(ctx, func(ctx context.Context, ready, got func()) error {
		w, err := h.other.Watch()
		if err != nil {
			return err
		}
		defer w.Close()
		ready()
		for {
			for _, err := range h.other.Events(ctx, engine.Query{After: info.Newest, Limit: 1}) {
				if err == nil {
					got()
				}
				return err
			}
			if err := w.Wait(ctx, time.Time{}); err != nil {
				return err
			}
		}
	}, h.push)
}

func (h *thread) close() error {
	_ = h.other.Close()
	return h.t.Close()
}
