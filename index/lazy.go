package index

import (
	"fmt"
)

// lazy is a bucket that is opened with its first use: in a short transaction most are
// not.
type lazy struct {
	open func() (*Bucket, error)
	b    *Bucket
}

func (l *lazy) bucket() (*Bucket, error) {
	if l.b == nil {
		b, err := l.open()
		if err == nil && b == nil {
			err = fmt.Errorf("%w: a bucket of series or types is missing", ErrDamaged)
		}
		if err != nil {
			return nil, err
		}
		l.b = b
	}
	return l.b, nil
}
