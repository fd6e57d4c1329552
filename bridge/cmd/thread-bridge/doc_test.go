package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"thread/bridge/config"
	"thread/bridge/internal/verb"
	"thread/internal/cli"
	"thread/internal/verb/core"
)

// TestMain makes this binary the programs that the page calls.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "thread":
		cli.Main("thread", core.Verbs)
	case "thread-bridge":
		cli.Main("thread-bridge", verb.Verbs)
	}
	os.Exit(m.Run())
}

// TestPage: the files in docs/BRIDGE.md are valid, and its commands do what it says,
// by thread, which runs thread-bridge.
func TestPage(t *testing.T) {
	data, err := os.ReadFile("../../../docs/BRIDGE.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KAFKA_PASSWORD", "x")
	for i, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(data, -1) {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, m[1], 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(m[1]), "queue_publish") {
			_, err = config.LoadPublish(path)
		} else {
			_, err = config.LoadTrigger(path)
		}
		if err != nil {
			t.Errorf("block %d: %v", i, err)
		}
	}
	script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(data)
	bin, exe := t.TempDir(), os.Args[0]
	if exe, err = filepath.Abs(exe); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"thread", "thread-bridge"} {
		if err := os.WriteFile(filepath.Join(bin, name), body, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sh := exec.Command("sh", "-e", "-c", string(script[1]))
	sh.Dir = t.TempDir()
	sh.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := sh.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"status":"stored"`) || !strings.Contains(string(out), `"source":"mock:orders","type":"order_placed"`) {
		t.Errorf("%v\n%s", err, out)
	}
}
