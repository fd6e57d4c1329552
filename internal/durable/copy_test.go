package durable

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// syncing counts what is not synced.
type syncing struct {
	bytes.Buffer
	since, most int
}

func (s *syncing) Write(b []byte) (int, error) {
	s.since += len(b)
	s.most = max(s.most, s.since)
	return s.Buffer.Write(b)
}

func (s *syncing) ReadFrom() {} // hides the buffer's, which Write would not see

func (s *syncing) Sync() error { s.since = 0; return nil }

func TestCopy(t *testing.T) {
	for _, size := range []int{0, 1, copyStep, 3*copyStep + 1} {
		from := bytes.Repeat([]byte("0123456789a"), size/11+1)[:size]
		var to syncing
		if err := Copy(context.Background(), &to, bytes.NewReader(from)); err != nil || !bytes.Equal(to.Bytes(), from) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if to.since != 0 || to.most > copyStep {
			t.Errorf("%d bytes: %d at most and %d at the end are not synced", size, to.most, to.since)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Copy(ended, &syncing{}, bytes.NewReader(nil)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
