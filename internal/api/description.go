package api

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"sync"
)

// packed is openapi.json, which is nine tenths spaces and repetition. TestPacked holds one
// against the other, and writes it with -update.
//
//go:embed openapi.json.gz
var packed []byte

// Description returns the description of the API.
var Description = sync.OnceValue(func() []byte {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		panic(err) // TestPacked reads it
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return text
})
