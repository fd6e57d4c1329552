package mqtt

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"thread/bridge/adapter"
	"thread/bridge/internal/brokertest"
	"thread/bridge/internal/mosquitto"
	"thread/bridge/trigger"
)

// TLS, credentials, and an account with no more than the rights of docs/reference/bridge.md.
func TestSecured(t *testing.T) {
	cert, key := brokertest.Certificate(t)
	dir := t.TempDir()
	passwords, acl := filepath.Join(dir, "passwords"), filepath.Join(dir, "acl")
	if out, err := exec.Command("mosquitto_passwd", "-b", "-c", passwords, "bridge", "hunter2").CombinedOutput(); err != nil {
		mosquitto.Needed(t, err)
		t.Fatal(string(out))
	}
	if err := os.WriteFile(acl, []byte("user bridge\ntopic read orders/#\ntopic write dlq/orders/#\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := mosquitto.New(t, "password_file "+passwords, "acl_file "+acl, "certfile "+cert, "keyfile "+key)
	s := settings("mqtts://"+server.Addr, "orders/#")
	s.RequireTLS, s.Connection["username"], s.Connection["password"], s.Connection["ca_file"] = true, "bridge", "hunter2", cert
	r := newRun(t, s, nil)
	r.Stop()

	for what, change := range map[string]func(*adapter.Settings){
		"not authorized": func(s *adapter.Settings) { s.Connection["password"] = "hunter3" },
		"certificate": func(s *adapter.Settings) {
			s.Connection["ca_file"] = ""
		},
		"127.0.0.1:1:": func(s *adapter.Settings) { s.Connection["server"] = "mqtts://127.0.0.1:1" },
	} {
		s := settings("mqtts://"+server.Addr, "orders/#")
		s.RequireTLS, s.Connection["username"], s.Connection["password"], s.Connection["ca_file"] = true, "bridge", "hunter2", cert
		change(s)
		k := newSource(s)
		err := k.Connect(context.Background(), trigger.NoState)
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), what) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v", what, err)
		}
		if k.Health(context.Background()).OK {
			t.Errorf("%s: healthy", what)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What a file may say.
func TestCheck(t *testing.T) {
	brokertest.Checks(t, "mqtt", "", map[string]string{
		"server=h": "", "server=mqtt://h:1": "", "server=mqtts://h": "", "server=ws://h": "scheme ws", "server=mqtt://u:p@h": "credentials",
		"server=mqtt://": "host:port", "server=h/x": "host:port", "server=h:port": "host:port", "server=h & tls=false": "", "server=[::1]:1883": "",
		"server=h & receive_maximum=0": "1 to 65535", "server=h & receive_maximum=65536": "1 to 65535", "server=h & password=x": "belong together",
		"server=h & keep_alive=0.5": "65535s", "server=h & keep_alive=0": "", "server=h & username=u": "",
		"require & server=mqtt://h": "has no TLS", "require & server=h & tls=false": "refused", "require & server=h": "", "require & server=mqtts://h": "",
	})
	for q, want := range map[string][2]bool{ // may be read, may be published to
		"a": {true, true}, "a/b": {true, true}, "/": {true, true}, "+": {true, false}, "#": {true, false}, "a/+/b": {true, false}, "a/#": {true, false},
		"a/#/b": {false, false}, "a+": {false, false}, "a/b#": {false, false}, "$share/g/a": {false, false}, "a\x00": {false, false}, "a b/ü": {true, true},
		strings.Repeat("a", 60001): {false, false},
	} {
		if got := [2]bool{checkQueue(q, true) == "", checkQueue(q, false) == ""}; got != want {
			t.Errorf("%.20q: %v, want %v", q, got, want)
		}
	}
	for host, want := range map[string]string{"h": "h:1883", "mqtts://h": "h:8883", "h:1": "h:1", "[::1]": "[::1]:1883", "mqtts://[::1]:2": "[::1]:2"} {
		if got, _, err := address(host); err != nil || got != want {
			t.Errorf("%s: %s %v", host, got, err)
		}
	}
	if got := clean("a\x00" + string([]byte{0xff}) + strings.Repeat("ü", 40000)); len(got) > 65535 || !strings.HasPrefix(got, "a\uFFFD\uFFFDü") {
		t.Errorf("%d %.10q", len(got), got)
	}
}
