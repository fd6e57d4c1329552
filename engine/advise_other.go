//go:build !linux

package engine

func (tx *Tx) readAhead() {}
