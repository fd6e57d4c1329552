//go:build !unix

package fsck

import "errors"

func mkfifo(string) error { return errors.ErrUnsupported }
