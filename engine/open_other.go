//go:build !unix

package engine

const (
	openNoFollow = 0
	openNoWait   = 0
)

// canOffer: an open file cannot be renamed (offer.go).
const canOffer = false
