package mirrortest

import (
	"context"
	"errors"

	"pgregory.net/rapid"

	"thread/internal/historymirror"
)

// Mirror is an open mirror, in whichever database.
type Mirror interface {
	Sync(ctx context.Context) (n int64, err error)
	Close() error
}

// OnePage is one round of Sync, with write in the place of the core's Write.
func OnePage(core *historymirror.Mirror, write func(ctx context.Context, b *historymirror.Batch) error) error {
	ctx := context.Background()
	b, err := core.Next(ctx)
	if err != nil || b == nil {
		return err
	}
	return write(ctx, b)
}

// Two returns what two processes do that have one mirror open, for [rapid.T.Repeat].
func Two(open func(t *rapid.T) (Mirror, *historymirror.Mirror)) map[string]func(*rapid.T) {
	ctx := context.Background()
	return map[string]func(*rapid.T){
		"two at once": func(t *rapid.T) {
			a, core := open(t)
			b, _ := open(t)
			Must(t, OnePage(core, core.Write))
			_, err := b.Sync(ctx)
			Must(t, err)
			_, err = a.Sync(ctx)
			Must(t, errors.Join(err, a.Close(), b.Close()))
		},
		"late page of another": func(t *rapid.T) {
			a, late := open(t)
			b, _ := open(t)
			copied := int64(0)
			err := OnePage(late, func(ctx context.Context, page *historymirror.Batch) (err error) {
				copied, err = b.Sync(ctx)
				Must(t, err)
				return late.Write(ctx, page)
			})
			if moved := errors.Is(err, historymirror.ErrMoved); copied > 0 && !moved || err != nil && !moved {
				t.Fatalf("%d history events were copied meanwhile: %v", copied, err)
			}
			Must(t, errors.Join(a.Close(), b.Close()))
		},
	}
}
