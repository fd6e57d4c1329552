package verb

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
	"thread/internal/address"
	"thread/internal/cli"
	"thread/net/servers"
)

// TestMain also runs the program, for tests that stop it.
func TestMain(m *testing.M) {
	servers.Use()
	if os.Getenv("THREAD_TEST_PROGRAM") != "" {
		cli.Main("thread-bridge", Verbs)
	}
	os.Exit(m.Run())
}

// onServer makes a thread in PostgreSQL. THREAD_POSTGRES is as for the tests of thread-net.
func onServer(t *testing.T) string {
	t.Helper()
	where := os.Getenv("THREAD_POSTGRES")
	must := where != ""
	if where == "" || where == "1" {
		where = "host=127.0.0.1 port=5432 user=postgres dbname=postgres sslmode=disable connect_timeout=5"
	}
	config, err := pgconn.ParseConfig(where)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil && must {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("PostgreSQL does not answer, and THREAD_POSTGRES does not demand it: %v", err)
	}
	t.Setenv("PGPASSWORD", config.Password)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	schema := fmt.Sprintf("thread_bridge_%d_%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+schema+" CASCADE").ReadAll()
		if err != nil {
			t.Error(err)
		}
		_ = conn.Close(context.Background())
	})
	q := url.Values{"host": {config.Host}, "port": {fmt.Sprint(config.Port)}, "schema": {schema}, "thread": {"inbox"}, "connect_timeout": {"60"}}
	if config.TLSConfig == nil {
		q.Set("sslmode", "disable")
	}
	at := "postgres://" + url.User(config.User).String() + "@/" + url.PathEscape(config.Database) + "?" + q.Encode()
	if err := address.Init(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	return at
}

// kept is a broker that keeps messages in memory.
type kept chan trigger.Outgoing

func (k kept) Connect(context.Context) (int64, error)    { return 0, nil }
func (k kept) Health(context.Context) (h trigger.Health) { return h }
func (k kept) Capabilities() (c trigger.Caps)            { return c }
func (k kept) Close() error                              { return nil }
func (k kept) Publish(_ context.Context, ms []trigger.Outgoing) error {
	for _, m := range ms {
		k <- m
	}
	return nil
}

// TestOnServer: a trigger stores messages in a thread in PostgreSQL, once each, and one process
// works for it on all hosts; a publisher publishes from there.
func TestOnServer(t *testing.T) {
	at := onServer(t)
	spool := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := file("in.yaml", "queue_name: q\nconsumer_group: g\nadapter: {type: mock, connection: {dir: "+spool+"}}\n")
	start := func(state string) (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command(os.Args[0], "trigger", "run", "--thread", at, "--config", config)
		cmd.Env = append(os.Environ(), "THREAD_TEST_PROGRAM=1", "XDG_STATE_HOME="+state)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if cmd.ProcessState == nil {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		})
		return cmd, &said
	}
	for i := range 3 {
		if err := adapter.Spool(spool, &trigger.Message{ID: fmt.Sprint("m-", i), Body: []byte(`{"a":1}`)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := start(t.TempDir())
	th, err := address.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	n := 0
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for e, err := range th.Follow(limited, 0, "") {
		if err != nil || e.Content == "" {
			t.Fatalf("%+v %v", e, err)
		}
		if n++; n == 3 {
			break
		}
	}
	second, said := start(t.TempDir())
	if err := second.Wait(); err == nil || !strings.Contains(said.String(), "Error: trigger q runs already in this thread - ") {
		t.Errorf("a second one on another host: %v %s", err, said)
	}
	_ = first.Process.Signal(os.Interrupt)
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	code, text, stderr := call("trigger", "ledger", "--thread", at, "--name", "q", "--status", "stored", "--json")
	if code != 0 || strings.Count(text, "\n") != 3 {
		t.Errorf("%d %s %s", code, text, stderr)
	}
	if code, text, stderr = call("trigger", "pause", "--thread", at, "--name", "q"); code != 0 || text != "Paused trigger 'q'\n" {
		t.Errorf("%d %s %s", code, text, stderr)
	}
	var s struct{ Running, Paused bool }
	if _, text, _ = call("trigger", "status", "--thread", at, "--name", "q", "--json"); json.Unmarshal([]byte(text), &s) != nil || s.Running || !s.Paused {
		t.Error(text)
	}
	rules := file("out.yaml", "queue_publish:\n  name: out\n  queue_name: events\n  body: content\n  adapter: {type: kept}\n")
	sent := make(kept, 10)
	adapter.Register(adapter.Spec{Type: "kept", Sink: func(*adapter.Settings) (trigger.Sink, error) { return sent, nil }})
	ended := make(chan int)
	go func() {
		code, _, _ := call("publish", "run", "--thread", at, "--config", rules)
		ended <- code
	}()
	for i := range 3 {
		if m := <-sent; m.Event != int64(i+1) || !strings.Contains(string(m.Body), `{"a":1}`) {
			t.Errorf("%+v", m)
		}
	}
	if code, text, stderr = call("publish", "run", "--thread", at, "--config", rules); code != 1 || !strings.Contains(stderr, "publish out runs already in this thread") {
		t.Errorf("%d %s %s", code, text, stderr)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}
