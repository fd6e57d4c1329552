//go:build !linux && !darwin && !windows

package target

import "errors"

func rename(string, string) error { return errors.ErrUnsupported }
