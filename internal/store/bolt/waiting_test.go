package bolt_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"thread/engine"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// gateHeld is a gate that another process holds until a push waits for it.
type gateHeld struct {
	held  *lock.File
	tries int
}

func (g *gateHeld) asked(dir string, c faults.Call) {
	if c.Name != "flock" || !strings.HasSuffix(c.Path, "run/.gate") {
		return
	}
	switch g.tries++; g.tries {
	case 1:
		g.held, _ = lock.Try(filepath.Join(dir, store.RunName, ".gate"), lock.Exclusive)
	case 2:
		g.held.Close()
	}
}

func (g *gateHeld) end() {
	if g.held != nil {
		g.held.Close()
	}
	*g = gateHeld{}
}

func (g *gateHeld) push(ctx context.Context, dir string) error {
	th, err := engine.Open(dir)
	if err != nil {
		return err
	}
	defer th.Close()
	_, err = th.Push(ctx, draft("new"))
	return err
}

// waitingPush is a push of another process that has left its drafts and waits.
type waitingPush struct{ f *os.File }

func (w *waitingPush) begin(dir string) {
	if w.f != nil {
		return
	}
	name := filepath.Join(dir, store.RunName, bolt.PendingName, fmt.Sprintf("%032x", 7)+bolt.PendingNew)
	_ = os.MkdirAll(filepath.Dir(name), 0o700)
	var err error
	if w.f, err = os.Create(name); err == nil {
		_, _ = w.f.WriteString("f\x00\x01s\x01t\x00\x05other\x00\x00")
		_ = lock.TryFile(w.f, lock.Exclusive)
	}
}

func (w *waitingPush) end() {
	if w.f != nil {
		os.Remove(strings.TrimSuffix(w.f.Name(), bolt.PendingNew) + bolt.PendingTaken)
		os.Remove(w.f.Name())
		w.f.Close()
	}
	w.f = nil
}
