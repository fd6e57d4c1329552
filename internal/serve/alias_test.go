//go:build linux

package serve

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"thread/engine"
)

// TestAlias: a thread is served once, whatever paths lead to it.
func TestAlias(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo $PPID > "$D/at"; ` + drain})
	link := b.path("link")
	if err := os.Symlink(b.t.Dir(), link); err != nil {
		t.Fatal(err)
	}
	b.serve(Options{Threads: []string{link}, Roots: []string{filepath.Dir(b.t.Dir())}})
	if n := b.s.count(); n != 1 || len(b.s.repeats.seen) > 0 {
		t.Errorf("%d threads are served, %v logged", n, b.s.repeats.seen)
	}
	b.push("s")
	if got := b.line(at); got != strconv.Itoa(os.Getpid()) {
		t.Errorf("the handler's parent is %s", got)
	}
	b.idle()
}
