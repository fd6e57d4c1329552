// Package progress lets a long job say how far it is, to whoever waits for it. It is
// carried by the context, as it changes nothing of what the job does.
package progress

import "context"

// Report is told how much of what is done. total 0 is not known. Calls are cheap and come
// often; each of them may be for another what, which begins anew. A nil Report is nobody.
type Report func(what string, done, total int64)

// Tell calls r, if it is somebody.
func (r Report) Tell(what string, done, total int64) {
	if r != nil {
		r(what, done, total)
	}
}

type key struct{}

// With returns a context whose jobs tell r.
func With(ctx context.Context, r Report) context.Context { return context.WithValue(ctx, key{}, r) }

// Of returns whom the jobs of ctx tell, nil for nobody.
func Of(ctx context.Context) Report {
	r, _ := ctx.Value(key{}).(Report)
	return r
}
