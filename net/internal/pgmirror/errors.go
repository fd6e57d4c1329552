package pgmirror

import (
	"context"
	"errors"
	"fmt"

	"thread/internal/historymirror"
	"thread/net/internal/pgerror"
)

var (
	// ErrRights is returned when the role may not make the tables, or not write to them.
	ErrRights = errors.New("the role lacks a right")
	// ErrBusy is returned for what passes: a server that does not answer, or a lock.
	ErrBusy = errors.New("the mirror cannot be written now")
	// ErrRefused is returned for what else PostgreSQL says no to.
	ErrRefused = errors.New("PostgreSQL refuses it")
	// ErrVersion is returned for tables of another version.
	ErrVersion = errors.New("the mirror has another version")

	errState = errors.New("thread_mirror has not one row")
)

// failure tells errors apart.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, known := range []error{historymirror.ErrNotMirror, historymirror.ErrMoved, ErrRights, ErrBusy, ErrRefused, ErrVersion, errState} {
		if errors.Is(err, known) {
			return err
		}
	}
	switch code := pgerror.Code(err); {
	case code == "":
		return fmt.Errorf("%w: PostgreSQL: %w", ErrBusy, err)
	case code == "42501": // insufficient_privilege
		return fmt.Errorf("%w: %w", ErrRights, err)
	case pgerror.Passes(code):
		return fmt.Errorf("%w: PostgreSQL: %w", ErrBusy, err)
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}
