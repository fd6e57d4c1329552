package serve

import (
	"crypto/tls"
	"net"
	"sync/atomic"
)

// Certificate is a certificate with its key, from two files that can be read again.
type Certificate struct {
	certFile, keyFile string
	now               atomic.Pointer[tls.Certificate]
}

// LoadCertificate reads a certificate, with those that lead to its root, and its key.
func LoadCertificate(certFile, keyFile string) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile}
	return c, c.Reload()
}

// Reload reads the files again, for connections that are begun from then on. When they
// are wrong, what was read before stays.
func (c *Certificate) Reload() error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.now.Store(&pair)
	return nil
}

// Config is what Options.TLS takes.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil }}
}

// certifies reports whether the certificate is for the name of a field Host.
func certifies(config *tls.Config, host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if config == nil || config.GetCertificate == nil {
		return false
	}
	pair, err := config.GetCertificate(nil)
	return err == nil && pair.Leaf != nil && pair.Leaf.VerifyHostname(host) == nil
}
