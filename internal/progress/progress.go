// Package progress lets a long job report how far it is. It is
// carried by the context, as it changes nothing of what the job does.
package progress

import "context"

// Report is told how much of what is done. total 0 is not known. Calls are cheap and come
// often; each of them may be for another what, which begins again. A nil Report does nothing.
type Report func(what string, done, total int64)

// Tell calls r, unless it is nil.
func (r Report) Tell(what string, done, total int64) {
	if r != nil {
		r(what, done, total)
	}
}

type key struct{}

// With returns a context whose jobs tell r.
func With(ctx context.Context, r Report) context.Context { return context.WithValue(ctx, key{}, r) }

// Of returns the Report of ctx, nil for none.
func Of(ctx context.Context) Report {
	r, _ := ctx.Value(key{}).(Report)
	return r
}
