package bolt

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"thread/event"
	"thread/internal/store"
	"thread/lock"
)

// leave leaves the drafts of group as a pending write. It returns nil if that fails,
// or is not worth it: then they wait for their turn like everything else.
func (t *Store) leave(group []*write) *pendingWrite {
	if !canLeaveWrites {
		return nil
	}
	b := []byte{stateFree}
	for _, w := range group {
		if w.bytes() > maxPendingBytes {
			return nil
		}
		for i := range w.drafts {
			if b = appendDraft(b, &w.drafts[i]); len(b) > maxPendingBytes {
				return nil
			}
		}
	}
	o := &pendingWrite{}
	for i := range o.token {
		o.token[i] = byte(rand.Uint32())
	}
	o.path = t.Path(store.RunName, pendingName, hex.EncodeToString(o.token[:]))
	const flag = os.O_RDWR | os.O_EXCL | OpenNoFollow
	var err error
	if o.f, err = lock.Create(o.path, flag); errors.Is(err, os.ErrNotExist) {
		if err = lock.Mkdir(t.Path(store.RunName, pendingName)); err == nil {
			o.f, err = lock.Create(o.path, flag)
		}
	}
	if err != nil {
		return nil
	}
	if err = errors.Join(lock.TryFile(o.f, lock.Exclusive), lock.Usable(o.f)); err == nil {
		if _, err = o.f.Write(b); err == nil {
			err = os.Rename(o.path, o.path+pendingNew)
		}
	}
	if err != nil {
		os.Remove(o.path)
		o.f.Close()
		return nil
	}
	return o
}

func (w *write) bytes() (n int) {
	for i := range w.drafts {
		n += len(w.drafts[i].Content)
	}
	return n
}

// close withdraws the pending write if it was not taken, and removes its file.
func (o *pendingWrite) close() {
	if !o.withdraw() {
		os.Remove(o.path + pendingTaken)
	}
	o.f.Close()
}

// withdraw reports whether the pending write could still be taken until now.
func (o *pendingWrite) withdraw() bool { return os.Remove(o.path+pendingNew) == nil }

// state returns the first byte of the file, 0 if it cannot be read.
func (o *pendingWrite) state() byte {
	var b [1]byte
	if _, err := o.f.ReadAt(b[:], 0); err != nil {
		return 0
	}
	return b[0]
}

// wait keeps the receipt of the token.
func (o *pendingWrites) wait(token []byte) {
	if o.waiting == nil {
		o.waiting = map[string]bool{}
	}
	o.waiting[string(token)] = true
}

// note tells the owners how the commit ended, and closes their files.
func (o *pendingWrites) note(state byte) {
	for i := range o.taken {
		if state != 0 {
			_, _ = o.taken[i].f.WriteAt([]byte{state}, 0) // without a note the owner syncs
		}
		o.taken[i].f.Close()
	}
	o.taken = nil
}

// takePending takes the pending writes of all who wait. The caller has the database's
// lock. What cannot be read is left to its owner; what has no owner is removed.
func (t *Store) takePending() (o pendingWrites) {
	dir, err := os.OpenFile(t.Path(store.RunName, pendingName), os.O_RDONLY|OpenNoWait, 0)
	if err != nil {
		return pendingWrites{all: errors.Is(err, os.ErrNotExist)}
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		stem, _, _ := strings.Cut(name, ".")
		token, err := hex.DecodeString(stem)
		if err != nil || len(token) != tokenBytes {
			continue
		}
		path := t.Path(store.RunName, pendingName, name)
		f, err := os.OpenFile(path, os.O_RDWR|OpenNoFollow|OpenNoWait, 0)
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				o.wait(token) // its owner may still be there
			}
			continue
		}
		switch ending := name[len(stem):]; {
		case lock.TryFile(f, lock.Exclusive) == nil: // the owner is gone
			os.Remove(path)
		case ending == pendingNew && len(o.taken) < maxPending:
			if drafts := takeOne(f, path); drafts != nil {
				o.taken = append(o.taken, takenWrite{f, token, drafts})
				continue // f stays open
			}
		case ending == pendingTaken:
			o.wait(token)
		}
		f.Close()
	}
	o.all = err == nil
	return o
}

func takeOne(f *os.File, path string) []event.Draft {
	drafts, err := readPending(f)
	if err != nil || os.Rename(path, strings.TrimSuffix(path, pendingNew)+pendingTaken) != nil {
		return nil
	}
	if _, err := f.WriteAt([]byte{stateTaken}, 0); err != nil {
		return nil
	}
	return drafts
}

func readPending(f *os.File) ([]event.Draft, error) {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.ErrUnsupported)
	}
	b, err := io.ReadAll(io.LimitReader(f, 2*maxPendingBytes))
	if err != nil || len(b) == 0 {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	drafts, err := decodeDrafts(string(b[1:]))
	if err != nil {
		return nil, err
	}
	for i := range drafts {
		if err := drafts[i].Validate(); err != nil {
			return nil, err
		}
	}
	return drafts, nil
}

// errUnsettled is returned to a reader where a writer has to settle what is stored first.
var errUnsettled = errors.New("stored, but perhaps not synced")

// errStored ends a turn whose events were stored by another process.
var errStored = errors.New("stored by another process")

// awaitCommit waits until the process that holds the gate has left it. If the pending
// write was taken by then, it waits for the outcome and returns errStored or an error.
// Without an error we need a turn of our own. Unlike a turn, this wait is shared: all
// see the outcome at the same time.
func (l *turn) awaitCommit(ctx context.Context) error {
	if _, err := l.t.gate(ctx, lock.Shared); err != nil || l.pending.state() == stateFree {
		return err
	}
	if err := l.outcome(ctx); !errors.Is(err, errUnsettled) {
		return err
	}
	return nil // our own turn settles it
}

// outcome returns errStored if the pending write was stored, nil if it was not.
func (l *turn) outcome(ctx context.Context) error {
	db, err := l.t.openNow(ctx, lock.Shared, 0)
	if err != nil {
		return err
	}
	return l.t.view(db, func(tx *Tx) error { return tx.outcome(l.pending, l.group) })
}

// outcomeTimeout is how long a push whose lock timeout has ended continues waiting for the
// outcome of a pending write that was taken. If others of its group have longer, all
// wait as long as those.
const outcomeTimeout = 500 * time.Millisecond

// endPending removes the pending write after a turn that ended with err, and returns
// what the push is to return.
func (l *turn) endPending(err error) error {
	o := l.pending
	defer o.close()
	if err == nil || errors.Is(err, errStored) {
		return nil
	}
	if errors.Is(err, store.ErrUnknownOutcome) || o.withdraw() {
		return err
	}
	until := time.Now().Add(outcomeTimeout)
	for _, w := range l.group {
		if w.ctx.Err() == nil && l.first.until.After(until) {
			until = l.first.until
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	switch lookupErr := l.outcome(ctx); {
	case lookupErr == nil:
		return err
	case errors.Is(lookupErr, errStored):
		return nil
	case errors.Is(lookupErr, store.ErrUnknownOutcome):
		return lookupErr
	default:
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, lookupErr)
	}
}

// outcome decides, under the database's lock, what became of the pending write o of
// group: errStored, with the events filled in; or nil, for not stored and never to be
// stored.
func (tx *Tx) outcome(o *pendingWrite, group []*write) error {
	stored, err := tx.receipt(o.token[:], group)
	state := o.state()
	switch {
	case err != nil:
		return err
	case stored && state == stateUnknown:
		return fmt.Errorf("%w: the process that stored it was told of an error", store.ErrUnknownOutcome)
	case stored && state != stateDurable:
		if !tx.Writable() {
			return errUnsettled
		}
		return errStored // a writer has settled it
	case stored:
		return errStored
	case state == stateFree:
		return nil
	case state == stateDurable:
		return fmt.Errorf("%w: it was stored, but its receipt is gone", store.ErrUnknownOutcome)
	}
	switch has, err := lock.Names(o.path+pendingTaken, o.f); {
	case has:
		return nil
	case err == nil || errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: run/ was deleted while the push waited", store.ErrUnknownOutcome)
	default:
		return err
	}
}
