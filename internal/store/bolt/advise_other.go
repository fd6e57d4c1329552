//go:build !linux

package bolt

func (tx *Tx) readAhead() {}
