package pgstore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"thread/history"
	"thread/internal/address"
)

// startPooler starts PgBouncer, which gives a session to one transaction after the other, in
// front of the server, with that many sessions. It returns the address by way of it.
func startPooler(t *testing.T, a *Address, sessions int) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil && os.Getenv("THREAD_POSTGRES") != "" {
		t.Fatalf("THREAD_POSTGRES is set, and %v", err)
	}
	if err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "pooler")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c, password := a.config, ""
	if p := os.Getenv("PGPASSWORD"); p != "" {
		password = " password=" + p
	}
	config := fmt.Sprintf("[databases]\n* = host=%s port=%d user=%s%s\n[pgbouncer]\nlisten_port = 6432\nunix_socket_dir = %s\nauth_type = any\npool_mode = transaction\ndefault_pool_size = %d\n",
		c.Host, c.Port, c.User, password, dir, sessions)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, file)
	if os.Getuid() == 0 { // it refuses to run as root
		account := uint32(65534)  // it has no rights
		var socket syscall.Stat_t // its directory may be for its owner alone
		if syscall.Stat(c.Host, &socket) == nil && socket.Uid != 0 {
			account = socket.Uid
		}
		if err := os.Chown(dir, int(account), int(account)); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: account, Gid: account}}
	}
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	log := bufio.NewReader(out)
	for line := ""; !strings.Contains(line, "process up"); {
		if line, err = log.ReadString('\n'); err != nil {
			t.Fatalf("PgBouncer does not start: %q, %v", line, err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	u, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("host", dir)
	q.Set("port", "6432")
	u.RawQuery = q.Encode()
	return u.String()
}

// TestPooler: processes that share two sessions enqueue jobs and work on them, at once, and none
// has to wait for a session that waits for it.
func TestPooler(t *testing.T) {
	const processes, jobs = 4, 10
	a := newSchema(t)
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	if err := Init(ctx, a); err != nil {
		t.Fatal(err)
	}
	address.SetDriver(&countedDriver{t: t})
	t.Cleanup(func() { address.SetDriver(nil) })
	pooled := startPooler(t, a, 2)
	var done atomic.Int64
	var all sync.WaitGroup
	for range processes {
		h, err := history.Open(ctx, pooled)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close() })
		all.Go(func() {
			for range jobs {
				if _, _, err := h.EnqueueJob(ctx, history.RunRow{AgentName: "a"}, []byte(`1`)); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			err := h.Work(ctx, history.WorkOptions{Parallel: 2}, func(context.Context, *history.Run) (json.RawMessage, error) {
				if done.Add(1) == processes*jobs {
					stop()
				}
				return nil, nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	if all.Wait(); done.Load() != processes*jobs {
		t.Errorf("%d jobs are done", done.Load())
	}
}
