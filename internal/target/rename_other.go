//go:build !linux && !darwin

package target

import "errors"

func rename(string, string) error { return errors.ErrUnsupported }
