package api

import (
	"bytes"
	"compress/gzip"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write openapi.json.gz")

// TestPacked: the program has what openapi.json says.
func TestPacked(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		var out bytes.Buffer
		w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
		if _, err := w.Write(text); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("openapi.json.gz", out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		packed = out.Bytes()
	}
	if !bytes.Equal(Description(), text) {
		t.Error("openapi.json has changed: go test ./internal/api -run TestPacked -update")
	}
}
