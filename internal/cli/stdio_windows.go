package cli

import (
	"errors"
	"os"
	"syscall"
)

// standard returns stdout or stderr; no signal comes from writing to it here.
func standard(f *os.File, _ int) *os.File { return f }

// spareDescriptors returns nil: there is no such limit here.
func spareDescriptors() error { return nil }

// isReaderGone reports whether a write failed because nobody reads.
func isReaderGone(err error) bool {
	const errorNoData = syscall.Errno(232) // ERROR_NO_DATA: the pipe is being closed
	return errors.Is(err, syscall.ERROR_BROKEN_PIPE) || errors.Is(err, errorNoData)
}
