package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"thread/engine"
	"thread/internal/counts"
)

var errCounting error = &Error{http.StatusServiceUnavailable, "counting takes too long: give since, or a filter of source, type or subtype, which are indexed"}

// stats counts events as thread stats does, in a time and for a few clients at once.
func (a *API) stats(rw http.ResponseWriter, q *http.Request) error {
	t, err := a.host.Thread(q.PathValue("name"))
	if err != nil {
		return err
	}
	p := q.URL.Query()
	by, err := counts.Parse(cmp.Or(p.Get("by"), counts.All))
	if err != nil {
		return badRequest("by: %v", err)
	}
	limit, err := limitOf(q)
	if err != nil {
		return err
	}
	of := engine.Query{Filter: p.Get("filter")}
	if text := p.Get("since"); text != "" {
		if of.Since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return badRequest("since is not a time as 2026-01-31T09:00:00Z")
		}
	}
	select {
	case a.counting <- struct{}{}:
		defer func() { <-a.counting }()
	default:
		return &Error{http.StatusServiceUnavailable, "other clients count at the moment"}
	}
	ctx, cancel := context.WithTimeoutCause(q.Context(), countTime, errCounting)
	defer cancel()
	list, err := by.Count(ctx, t.Engine(), of, limit+1)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errCounting):
		return errCounting
	case err != nil:
		return err
	}
	text, n := []byte(`{"counts":[`), int64(0)
	for s, count := range list {
		if n++; n > limit {
			break
		}
		if n > 1 {
			text = append(text, ',')
		}
		text = by.AppendJSON(text, &s, count)
	}
	answering(rw)
	rw.Header().Set("Content-Type", "application/json")
	text = strconv.AppendBool(append(text, `],"complete":`...), n <= limit)
	_, _ = rw.Write(append(text, "}\n"...)) // who asked may be gone
	return nil
}
