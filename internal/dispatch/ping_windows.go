package dispatch

import "errors"

func (r *room) ping(byte, string) bool           { return false }
func (r *room) sendTo(string, byte, string) bool { return false }

// Pings is the receiving end of a thread's pings, which Windows does not have.
type Pings struct{}

func (r *room) listen() (*Pings, error)         { return nil, errors.ErrUnsupported }
func (r *room) listenAt(string) (*Pings, error) { return nil, errors.ErrUnsupported }

// Next returns an error.
func (p *Pings) Next() (Ping, error) { return Ping{}, errors.ErrUnsupported }

// Named returns false.
func (p *Pings) Named() bool { return false }

// Close does nothing.
func (p *Pings) Close() error { return nil }
