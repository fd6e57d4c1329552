//go:build !unix

package bolt

const (
	OpenNoFollow = 0
	OpenNoWait   = 0
)

// canOffer: an open file cannot be renamed (offer.go).
const canOffer = false
