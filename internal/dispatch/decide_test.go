package dispatch

import (
	"testing"
	"time"
)

// The table of DESIGN section 6, one step per row, every streak from its start.
func TestDecide(t *testing.T) {
	const s = time.Second
	type step struct {
		e     ending
		v     verdict
		delay time.Duration
	}
	failed := ending{pending: true}
	failedFresh := ending{pending: true, fresh: true}
	idle := ending{ok: true, pending: true}
	idleFresh := ending{ok: true, pending: true, fresh: true}
	moved := ending{ok: true, moved: true, pending: true}
	for name, steps := range map[string][]step{
		"progress, more pending": {{moved, again, 0}, {moved, again, 0}},
		"no progress, something new": {{idleFresh, again, 0}, {idleFresh, retry, s}, {idleFresh, retry, 2 * s}, {idleFresh, retry, 4 * s},
			{idleFresh, retry, 8 * s}, {idleFresh, retry, 16 * s}, {idleFresh, retry, 16 * s}},
		"progress in between":         {{idleFresh, again, 0}, {moved, again, 0}, {idleFresh, again, 0}, {idleFresh, retry, s}},
		"no progress, nothing new":    {{idle, stopped, 0}, {idleFresh, again, 0}},
		"fails":                       {{failed, retry, s}, {failedFresh, retry, 2 * s}, {failed, retry, 4 * s}, {failed, retry, 8 * s}, {failed, stalled, 0}},
		"fails, then succeeds":        {{failed, retry, s}, {failed, retry, 2 * s}, {idleFresh, again, 0}, {failed, retry, s}},
		"fails with progress":         {{failed, retry, s}, {failed, retry, 2 * s}, {ending{moved: true, pending: true}, retry, s}, {failed, retry, 2 * s}},
		"fails, but nothing pending":  {{failed, retry, s}, {ending{}, done, 0}, {failed, retry, s}},
		"succeeds, nothing pending":   {{ending{ok: true, moved: true}, done, 0}, {ending{ok: true}, done, 0}},
		"succeeds after idle, done":   {{idleFresh, again, 0}, {ending{ok: true}, done, 0}, {idleFresh, again, 0}},
		"fails forty times with news": {{failedFresh, retry, s}, {failedFresh, retry, 2 * s}, {failedFresh, retry, 4 * s}, {failedFresh, retry, 8 * s}, {failedFresh, stalled, 0}},
	} {
		var k streak
		for i, st := range steps {
			if v, delay := decide(st.e, &k); v != st.v || delay != st.delay {
				t.Errorf("%s, step %d: verdict %d after %v, want %d after %v", name, i, v, delay, st.v, st.delay)
			}
		}
	}
}
