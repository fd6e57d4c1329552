//go:build !linux

package dispatch

import "time"

// alarm rings at a time of day.
type alarm struct {
	rings chan struct{}
	stop  func()
}

func newAlarm(at time.Time) *alarm {
	a := &alarm{rings: make(chan struct{})}
	timer := time.AfterFunc(time.Until(at), func() { close(a.rings) })
	a.stop = func() { timer.Stop() }
	return a
}
