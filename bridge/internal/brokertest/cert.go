package brokertest

import (
	"net"
	"path/filepath"
	"testing"

	"thread/internal/testcert"
)

// Certificate writes a certificate for 127.0.0.1, which signs itself, and its key.
func Certificate(t *testing.T) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	testcert.Write(t, cert, key, "127.0.0.1")
	return cert, key
}

// FreePort returns a port that no process listens at.
func FreePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
