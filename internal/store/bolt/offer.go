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

// # Offers
//
// Processes that push at the same time share their syncs, too. A push that has
// to wait for its turn offers its drafts: it leaves them in run/.offers and
// keeps waiting. Whoever has the database takes the offers of all who wait into
// its own transaction, and with them a receipt for each. When its turn comes, a
// push looks for its receipt first, and has no more to do if there is one.
//
// The database alone decides: an offer was stored if and only if there is a
// receipt. The names in run/.offers make that decidable whoever is killed:
//
//	TOKEN        being written
//	TOKEN.new    may be taken, by renaming it; or withdrawn, by removing it
//	TOKEN.taken  was taken
//
// Offers are taken, stored and answered under the database's lock. So, under
// that lock, an offer without a receipt was not stored and will not be, unless
// its owner lets it. A receipt is kept as long as its offer has its name and its
// owner holds the lock on it, which dies with the owner. run/ may be deleted at
// any time (T-19): an offer that was taken and has lost its name is the
// one case in which a missing receipt says nothing.
//
// An offer is never synced: its owner has promised nothing yet. But a receipt
// can be seen before it is sure to survive the loss of power, if the taker was
// killed, or told of an error, in the middle of its syncs. So the taker notes in
// the first byte of the offer how its commit ended, and an owner who finds no
// note syncs for itself.
const (
	offersName = ".offers"
	offerNew   = ".new"
	offerTaken = ".taken"
	tokenBytes = 16

	// The first byte of an offer.
	stateFree    = 'f'
	stateTaken   = 't'
	stateDurable = 'd' // it is stored, and that was synced
	stateUnknown = 'u' // the commit failed, and nobody knows what of it is on the disk

	// maxOfferBytes bounds one offer, maxOffers what one transaction looks at: a
	// push beside many others is not to wait for megabytes of theirs.
	maxOfferBytes = 64 << 10
	maxOffers     = 256
)

// offer is what this process offered.
type offer struct {
	token [tokenBytes]byte
	path  string // without ending
	f     *os.File
}

// offer offers the drafts of group. It returns nil if that does not work, or is
// not worth it: then they wait for their turn like everything else.
func (t *Store) offer(group []*write) *offer {
	if !canOffer {
		return nil
	}
	b := []byte{stateFree}
	for _, w := range group {
		if w.bytes() > maxOfferBytes {
			return nil
		}
		for i := range w.drafts {
			if b = appendDraft(b, &w.drafts[i]); len(b) > maxOfferBytes {
				return nil
			}
		}
	}
	o := &offer{}
	for i := range o.token {
		o.token[i] = byte(rand.Uint32())
	}
	o.path = t.Path(store.RunName, offersName, hex.EncodeToString(o.token[:]))
	const flag = os.O_RDWR | os.O_EXCL | OpenNoFollow
	var err error
	if o.f, err = lock.Create(o.path, flag); errors.Is(err, os.ErrNotExist) {
		if err = lock.Mkdir(t.Path(store.RunName, offersName)); err == nil {
			o.f, err = lock.Create(o.path, flag)
		}
	}
	if err != nil {
		return nil
	}
	if err = errors.Join(lock.TryFile(o.f, lock.Exclusive), lock.Usable(o.f)); err == nil {
		if _, err = o.f.Write(b); err == nil {
			err = os.Rename(o.path, o.path+offerNew)
		}
	}
	if err != nil {
		os.Remove(o.path)
		o.f.Close()
		return nil
	}
	return o
}

// close withdraws the offer if it was not taken, and ends it.
func (o *offer) close() {
	if !o.withdraw() {
		os.Remove(o.path + offerTaken)
	}
	o.f.Close()
}

// withdraw reports whether the offer was there to be taken, and now is not.
func (o *offer) withdraw() bool { return os.Remove(o.path+offerNew) == nil }

// state returns the offer's first byte; 0 if it cannot be read.
func (o *offer) state() byte {
	var b [1]byte
	if _, err := o.f.ReadAt(b[:], 0); err != nil {
		return 0
	}
	return b[0]
}

// offers are those of other processes, as seen under the database's lock.
type offers struct {
	taken   []takenOffer
	waiting map[string]bool // tokens taken earlier, whose owners are still there, or may be
	all     bool            // no name was missed
}

type takenOffer struct {
	f      *os.File
	token  []byte
	drafts []event.Draft
}

// wait keeps the receipt of the token.
func (o *offers) wait(token []byte) {
	if o.waiting == nil {
		o.waiting = map[string]bool{}
	}
	o.waiting[string(token)] = true
}

// note tells the owners how the commit ended, and lets go of their offers.
func (o *offers) note(state byte) {
	for i := range o.taken {
		if state != 0 {
			_, _ = o.taken[i].f.WriteAt([]byte{state}, 0) // without a note the owner syncs
		}
		o.taken[i].f.Close()
	}
	o.taken = nil
}

// takeOffers takes the offers of all who wait. The caller has the database's
// lock. What cannot be read is left to its owner, and what has none is removed.
func (t *Store) takeOffers() (o offers) {
	dir, err := os.OpenFile(t.Path(store.RunName, offersName), os.O_RDONLY|OpenNoWait, 0)
	if err != nil {
		return offers{all: errors.Is(err, os.ErrNotExist)}
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		stem, _, _ := strings.Cut(name, ".")
		token, err := hex.DecodeString(stem)
		if err != nil || len(token) != tokenBytes {
			continue
		}
		path := t.Path(store.RunName, offersName, name)
		f, err := os.OpenFile(path, os.O_RDWR|OpenNoFollow|OpenNoWait, 0)
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				o.wait(token) // nobody knows
			}
			continue
		}
		switch ending := name[len(stem):]; {
		case lock.TryFile(f, lock.Exclusive) == nil: // the owner is gone
			os.Remove(path)
		case ending == offerNew && len(o.taken) < maxOffers:
			if drafts := takeOffer(f, path); drafts != nil {
				o.taken = append(o.taken, takenOffer{f, token, drafts})
				continue // f stays open
			}
		case ending == offerTaken:
			o.wait(token)
		}
		f.Close()
	}
	o.all = err == nil
	return o
}

func takeOffer(f *os.File, path string) []event.Draft {
	drafts, err := readOffer(f)
	if err != nil || os.Rename(path, strings.TrimSuffix(path, offerNew)+offerTaken) != nil {
		return nil
	}
	if _, err := f.WriteAt([]byte{stateTaken}, 0); err != nil {
		return nil
	}
	return drafts
}

func readOffer(f *os.File) ([]event.Draft, error) {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.ErrUnsupported)
	}
	b, err := io.ReadAll(io.LimitReader(f, 2*maxOfferBytes))
	if err != nil || len(b) == 0 {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	drafts, err := decodeDrafts(string(b[1:]))
	for i := range drafts {
		if err == nil {
			err = drafts[i].Validate()
		}
	}
	if err != nil {
		return nil, err
	}
	return drafts, nil
}

// errStored ends a turn whose events were stored by another process.
var errStored = errors.New("stored by another process")

// awaitTaker waits until whoever is at the gate has passed it. If the offer was
// taken then, it waits for the outcome and returns errStored or an error. Without
// an error we need a turn of our own. Unlike a turn, this is shared: all who wait
// see the outcome at the same time.
func (l *turn) awaitTaker(ctx context.Context) error {
	if _, err := l.t.gate(ctx, lock.Shared); err != nil || l.offered.state() == stateFree {
		return err
	}
	return l.look(ctx)
}

// look returns errStored if the offer was stored, nil if it was not.
func (l *turn) look(ctx context.Context) error {
	db, err := l.t.openNow(ctx, lock.Shared, 0)
	if err != nil {
		return err
	}
	return l.t.view(db, func(tx *Tx) error { return tx.answer(l.offered, l.group) })
}

// lookAgain is how long a push that may wait no longer waits to learn what became
// of an offer that was taken. Where others of its group may, they all wait as long
// as these.
const lookAgain = 500 * time.Millisecond

// endOffer ends the offer after a turn that ended with err, and returns what the
// push is to return.
func (l *turn) endOffer(err error) error {
	o := l.offered
	defer o.close()
	if err == nil || errors.Is(err, errStored) {
		return nil
	}
	if errors.Is(err, store.ErrUnknownOutcome) || o.withdraw() {
		return err
	}
	until := time.Now().Add(lookAgain)
	for _, w := range l.group {
		if w.ctx.Err() == nil && l.first.until.After(until) {
			until = l.first.until
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	switch lookErr := l.look(ctx); {
	case lookErr == nil:
		return err
	case errors.Is(lookErr, errStored):
		return nil
	case errors.Is(lookErr, store.ErrUnknownOutcome):
		return lookErr
	default:
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, lookErr)
	}
}

// answer decides, under the database's lock, what became of the offer o of
// group: errStored, with the events filled in; or nil, for not stored and never
// to be.
func (tx *Tx) answer(o *offer, group []*write) error {
	stored, err := tx.receipt(o.token[:], group)
	state := o.state()
	switch {
	case err != nil:
		return err
	case stored && state == stateUnknown:
		return fmt.Errorf("%w: the process that stored it was told of an error", store.ErrUnknownOutcome)
	case stored && state != stateDurable:
		if err := tx.b.DB().Sync(); err != nil {
			return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
		}
		return errStored
	case stored:
		return errStored
	case state == stateFree:
		return nil
	case state == stateDurable:
		return fmt.Errorf("%w: it was stored, but its receipt is gone", store.ErrUnknownOutcome)
	}
	switch named, err := lock.Names(o.path+offerTaken, o.f); {
	case named:
		return nil
	case err == nil || errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: run/ was deleted while the push waited", store.ErrUnknownOutcome)
	default:
		return err
	}
}
