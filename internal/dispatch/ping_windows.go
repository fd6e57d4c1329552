package dispatch

import "errors"

func (r *dispatcher) ping(byte, string) bool           { return false }
func (r *dispatcher) sendTo(string, byte, string) bool { return false }

// SocketAddress returns an error.
func SocketAddress(string, string) (address string, done func(), err error) {
	return "", nil, errors.ErrUnsupported
}

// Pings is the receiving end of a thread's pings, which Windows does not have.
type Pings struct{}

func (r *dispatcher) listen() (*Pings, error)         { return nil, errors.ErrUnsupported }
func (r *dispatcher) listenAt(string) (*Pings, error) { return nil, errors.ErrUnsupported }

// Next returns an error.
func (p *Pings) Next() (Ping, error) { return Ping{}, errors.ErrUnsupported }

// Reachable returns false.
func (p *Pings) Reachable() bool { return false }

// Close does nothing.
func (p *Pings) Close() error { return nil }
