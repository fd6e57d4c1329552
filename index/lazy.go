package index

import (
	"fmt"

	"go.etcd.io/bbolt"
)

// lazy is a bucket that is opened with its first use: in a short transaction most are
// not.
type lazy struct {
	open func() (*bbolt.Bucket, error)
	b    *bbolt.Bucket
}

func (l *lazy) bucket() (*bbolt.Bucket, error) {
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
