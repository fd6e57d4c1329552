package traces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/address"
	"thread/lock"
)

// mark stores up to which history event runs are exported. One follower holds it.
type mark interface {
	// hold takes it, unless that was done, and returns the id; found is false where none is
	// stored. It returns [ErrHeld] where another follower has it.
	hold(ctx context.Context) (at int64, found bool, err error)
	move(ctx context.Context, at int64) error
	release()
}

// fileMark is in a file of a thread directory, which its holder locks.
type fileMark struct {
	path string
	held *lock.File
}

func (m *fileMark) hold(context.Context) (at int64, found bool, err error) {
	if m.held == nil {
		if err := lock.Mkdir(filepath.Dir(m.path)); err != nil {
			return 0, false, err
		}
		held, err := lock.Try(m.path, lock.Exclusive)
		if errors.Is(err, lock.ErrHeld) {
			return 0, false, ErrHeld
		}
		if err != nil {
			return 0, false, err
		}
		m.held = held
	}
	text := make([]byte, 32)
	n, _ := m.held.File().ReadAt(text, 0)
	at, err = strconv.ParseInt(strings.TrimSpace(string(text[:n])), 10, 64)
	return at, err == nil, nil
}

func (m *fileMark) move(_ context.Context, at int64) error {
	_, err := m.held.File().WriteAt(fmt.Appendf(nil, "%020d\n", at), 0)
	return err
}

func (m *fileMark) release() {
	if m.held != nil {
		_ = m.held.Close()
		m.held = nil
	}
}

// recordMark is a record of a thread on a server, with a lease: any host may export, and one
// that was killed keeps the others out for holdTime.
type recordMark struct {
	thread string
	opts   []engine.Option
	me     string
	t      *engine.Thread // nil before the first hold and after release
	held   bool
}

const (
	holdTime    = 30 * time.Second
	releaseTime = 5 * time.Second // for the server to answer
	markTable   = "otlp_marks"
)

// markRow is the record.
type markRow struct {
	At    int64     `json:"at"`
	By    string    `json:"by"`
	Until time.Time `json:"until"`
}

var markKey = []byte("exported")

// read returns the record. It returns [ErrHeld] where another follower holds it.
func (m *recordMark) read(tx *engine.Tx) (row markRow, found bool, err error) {
	r, err := tx.Records(markTable)
	if err != nil {
		return row, false, err
	}
	found = json.Unmarshal(r.Get(markKey), &row) == nil
	if found && row.By != m.me && tx.Now().Before(row.Until) {
		err = ErrHeld
	}
	return row, found, err
}

func (m *recordMark) put(tx *engine.Tx, at int64, lease time.Duration) error {
	r, err := tx.Records(markTable)
	if err != nil {
		return err
	}
	text, err := json.Marshal(markRow{at, m.me, tx.Now().Add(lease)})
	if err != nil {
		return err
	}
	return r.Put(markKey, text)
}

func (m *recordMark) hold(ctx context.Context) (at int64, found bool, err error) {
	take := func(tx *engine.Tx) error {
		row, some, err := m.read(tx)
		at, found = row.At, some
		return err
	}
	if m.t == nil {
		if m.t, err = address.Open(m.thread, m.opts...); err != nil {
			return 0, false, err
		}
	}
	if err := m.t.View(ctx, take); err != nil || !found { // most hosts only look
		return 0, false, err
	}
	err = m.t.Update(ctx, func(tx *engine.Tx) error {
		if err := take(tx); err != nil {
			return err
		}
		return m.put(tx, at, holdTime)
	})
	m.held = m.held || err == nil
	return at, found, err
}

func (m *recordMark) move(ctx context.Context, at int64) error {
	err := m.t.Update(ctx, func(tx *engine.Tx) error {
		if _, _, err := m.read(tx); err != nil {
			return err
		}
		return m.put(tx, at, holdTime)
	})
	m.held = m.held || err == nil
	return err
}

func (m *recordMark) release() {
	if m.held {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
		defer cancel()
		_ = m.t.Update(ctx, func(tx *engine.Tx) error { // without it the lease ends
			row, found, err := m.read(tx)
			if err != nil || !found || row.By != m.me {
				return err
			}
			return m.put(tx, row.At, 0)
		})
	}
	if m.t != nil {
		_ = m.t.Close()
	}
	m.t, m.held = nil, false
}
