package adapter

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLSKeys are the keys of connection for TLS; an adapter adds them to its own.
var TLSKeys = []Key{
	{Name: "tls", Kind: Bool, Help: "Connect with TLS."},
	{Name: "ca_file", Kind: File, Help: "Certificates that sign the broker's, PEM; by default the system's certificates."},
	{Name: "cert_file", Kind: File, Help: "The client's certificate, PEM."},
	{Name: "key_file", Kind: File, Help: "The client's key, PEM."},
	{Name: "server_name", Help: "The name in the broker's certificate, when it differs from the address."},
}

// TLS returns the configuration of TLS, nil when it is not asked for: by tls or
// require_tls, or since a file is named.
func (s *Settings) TLS() (*tls.Config, error) {
	if !s.Bool("tls") && !s.RequireTLS && s.Text("ca_file") == "" && s.Text("cert_file") == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.Text("server_name")}
	if path := s.Text("ca_file"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", path)
		}
	}
	if cert := s.Text("cert_file"); cert != "" || s.Text("key_file") != "" {
		pair, err := tls.LoadX509KeyPair(cert, s.Text("key_file"))
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
