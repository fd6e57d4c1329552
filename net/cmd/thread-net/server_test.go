//go:build !windows

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// patience bounds every wait for a server. Nothing takes as long, but a test has to end.
const patience = 2 * time.Minute

// servers are the servers of PostgreSQL that a test starts, in separate directories.
type servers struct {
	t    *testing.T
	bin  string
	dir  string
	attr *syscall.SysProcAttr
}

// newServers skips the test where PostgreSQL's programs are missing.
func newServers(t *testing.T) *servers {
	t.Helper()
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(bins) == 0 {
		t.Skip("PostgreSQL's programs are missing")
	}
	dir, err := os.MkdirTemp("/tmp", "thread-pg") // the name of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &servers{t: t, bin: filepath.Dir(bins[len(bins)-1]), dir: dir}
	if os.Geteuid() == 0 { // the server refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Skip(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *servers) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.attr
	return cmd
}

func (s *servers) run(name string, args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if out, err := s.command(ctx, name, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// server is one of them. Its socket is in socket.
type server struct {
	*servers
	data, socket string
	cmd          *exec.Cmd
	netns        string // a network namespace, in which it listens at every address; "" for a socket alone
}

// at is the server whose socket is the socket of host n. Its data are where nothing is yet.
func (s *servers) at(n, round int) *server {
	s.t.Helper()
	h := &server{s, filepath.Join(s.dir, fmt.Sprint("data", round)), filepath.Join(s.dir, fmt.Sprint("host", n)), nil, ""}
	mkdir := exec.Command("mkdir", "-p", h.socket)
	mkdir.SysProcAttr = s.attr
	if out, err := mkdir.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return h
}

func (h *server) start() {
	h.t.Helper()
	h.cmd = h.command(context.Background(), "postgres", "-D", h.data, "-k", h.socket, "-c", "listen_addresses=",
		"-c", "cluster_name="+filepath.Base(h.socket)) // by which a primary knows its standby
	if h.netns != "" { // to enter one, and to become another user there, are for root
		as := h.attr.Credential
		h.cmd = exec.Command("ip", append([]string{"netns", "exec", h.netns, "setpriv", fmt.Sprint("--reuid=", as.Uid), fmt.Sprint("--regid=", as.Gid), "--clear-groups"},
			append(h.cmd.Args, "-c", "listen_addresses=*")...)...)
		h.cmd.Dir = h.dir
	}
	log, err := os.Create(h.data + ".log")
	if err != nil {
		h.t.Fatal(err)
	}
	h.cmd.Stdout, h.cmd.Stderr = log, log
	err = h.cmd.Start()
	_ = log.Close()
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(h.kill)
}

// kill ends it as a crash would.
func (h *server) kill() {
	if h.cmd.ProcessState == nil {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	}
}

// sql runs statements, one connection after the other until the last column of the last
// row is as wanted.
func (h *server) sql(want string, statements ...string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		got, err := h.once(ctx, statements)
		if err == nil && got == want {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			log, _ := os.ReadFile(h.data + ".log")
			h.t.Fatalf("%s: %q: %v\n%s", statements, got, err, log)
		}
	}
}

func (h *server) once(ctx context.Context, statements []string) (last string, err error) {
	c, err := pgconn.Connect(ctx, "host="+h.socket+" user=postgres dbname=postgres sslmode=disable")
	if err != nil {
		return "", err
	}
	defer c.Close(ctx)
	for _, s := range statements {
		r := c.ExecParams(ctx, s, nil, nil, nil, nil).Read()
		if r.Err != nil {
			return "", r.Err
		}
		last = ""
		if n := len(r.Rows); n > 0 {
			last = string(r.Rows[n-1][len(r.Rows[n-1])-1])
		}
	}
	return last, nil
}

// standby makes another server that has what h has, and makes h wait for it with every
// commit.
func (h *server) standby(n, round int) *server {
	h.t.Helper()
	b := h.at(n, round)
	h.run("pg_basebackup", "-h", h.socket, "-U", "postgres", "-D", b.data, "-R", "-X", "stream", "-c", "fast")
	b.start()
	h.sql("", "ALTER SYSTEM SET synchronous_standby_names = 'host0, host1'")
	h.sql("t", "SELECT pg_reload_conf()")
	h.sql("sync", "SELECT sync_state FROM pg_stat_replication WHERE current_setting('synchronous_standby_names') <> ''")
	return b
}

// promote makes a standby the primary.
func (h *server) promote() {
	h.t.Helper()
	h.sql("t", "SELECT pg_promote(false)")
	h.sql("f", "SELECT pg_is_in_recovery()")
}

// address is a URL of both hosts, up to the name of the thread.
func (s *servers) address() string {
	q := url.Values{
		"host": {filepath.Join(s.dir, "host0") + "," + filepath.Join(s.dir, "host1")}, "port": {"5432,5432"},
		"sslmode": {"disable"}, "target_session_attrs": {"read-write"}, "connect_timeout": {"2"},
	}
	return "postgres://postgres@/postgres?" + q.Encode() + "&thread="
}
