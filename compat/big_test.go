//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64))

package compat

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"thread/engine"
)

// TestBig moves a large directory through, for the figures:
//
//	THREAD_BIG=/path/to/sqlite-directory go test -run TestBig -v ./compat
func TestBig(t *testing.T) {
	src := os.Getenv("THREAD_BIG")
	if src == "" {
		t.Skip("THREAD_BIG names no SQLite directory")
	}
	ctx := context.Background()
	var peak uint64
	watch := func(int64, int64) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse)
	}
	dir := t.TempDir()
	start := time.Now()
	r, err := Import(ctx, src, ImportOptions{To: dir + "/ours", Progress: watch})
	if err != nil {
		t.Fatal(err, r)
	}
	fmt.Printf("import %d events: %v, heap %d MB\n", r.Events, time.Since(start), peak>>20)
	th, err := engine.Open(dir + "/ours")
	if err != nil {
		t.Fatal(err)
	}
	peak, start = 0, time.Now()
	if _, err = Export(ctx, th, dir+"/sqlite", watch); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("export: %v, heap %d MB\n", time.Since(start), peak>>20)
	start = time.Now()
	before, err := th.Digest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("digest: %v\n", time.Since(start))
	sameDump(t, src, dir+"/sqlite")
	if _, err := Import(ctx, dir+"/sqlite", ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	again, err := engine.Open(dir + "/sqlite")
	if err != nil {
		t.Fatal(err)
	}
	if after, err := again.Digest(ctx); err != nil || after != before {
		t.Errorf("digest %x, before %x: %v", after, before, err)
	}
}
