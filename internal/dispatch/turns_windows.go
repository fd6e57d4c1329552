package dispatch

import (
	"errors"
	"io"
)

// There is no server here.

func dialUnix(dir, name string) (io.ReadWriteCloser, error) { return nil, errors.ErrUnsupported }

type deliveryFiles struct{}

func newDeliveryFiles(string) (*deliveryFiles, error) { return nil, errors.ErrUnsupported }
func (*deliveryFiles) usable() bool                   { return false }
func (*deliveryFiles) reset()                         {}
func (*deliveryFiles) close()                         {}
