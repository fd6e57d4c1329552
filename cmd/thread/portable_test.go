package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// TestPageSizeIsFixed: a database must not take over the page size of the host
// that made it, which is 16 KiB or 64 KiB on some arm64 and ppc64le kernels. It
// could be read elsewhere all the same, since bbolt goes by the size in the file
// and maps it from offset 0, which every page size divides; but it would be up to
// 16 times as large, and directories are copied from host to host.
func TestPageSizeIsFixed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	var out, errs bytes.Buffer
	if code := whole.Run([]string{"init", dir}, nil, &out, &errs); code != 0 {
		t.Fatal(&errs)
	}
	file, err := os.ReadFile(filepath.Join(dir, "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	// The second meta page starts where the first page ends: a header of 16 bytes,
	// then bbolt's magic number, its version and the page size.
	const page, header = 4096, 16
	for _, at := range []int{0, page} {
		magic, size := binary.NativeEndian.Uint32(file[at+header:]), binary.NativeEndian.Uint32(file[at+header+8:])
		if magic != 0xED0CDAED || size != page {
			t.Errorf("meta page at %d: magic %#x, page size %d", at, magic, size)
		}
	}
}
