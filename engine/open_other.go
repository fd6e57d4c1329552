//go:build !unix

package engine

const (
	openNoFollow = 0
	openNoWait   = 0
)
