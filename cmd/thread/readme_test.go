package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestReadmeTour types in what the README's five minutes say, and compares what
// it says comes out.
func TestReadmeTour(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		for line := range strings.Lines(block[1]) {
			// The test has its own program and its own directory.
			if !strings.HasPrefix(line, "make build") && !strings.HasPrefix(line, `cd "$(mktemp -d)"`) {
				script.WriteString(line)
			}
		}
	}
	dir, err := os.MkdirTemp("", "tour")
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	defer func() {
		// The supervisor of the handler is still closing up in there.
		for ; os.RemoveAll(dir) != nil; <-tick.C {
			select {
			case <-deadline:
				t.Errorf("%s cannot be removed", dir)
				return
			default:
			}
		}
	}()
	cmd := exec.Command("sh", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=spawn")
	out, err := cmd.Output()
	if err != nil && !strings.Contains(string(out), "Subscribed") {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"Initialized thread at ", "\n1\n", `"source":"self","type":"message","subtype":null,"content":"hello"}` + "\n",
		"\n2\n3\n", "Subscribed consumer 'mail'\n", "\n4\n", "Events: 4\n", "Subscribed consumer 'orders'\n5\n",
		"\nchat\n", "\n" + `[{"role":"user","content":"are the tests green?"},{"role":"assistant","content":"they are"}]` + "\n", "\nlost  failed  ", "\nfailures  ",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tour does not print %q; it prints\n%s", want, out)
		}
	}

	ids := regexp.MustCompile(`(?m)^\{"id":(\d+),`)
	for {
		mail, _ := os.ReadFile(filepath.Join(dir, "mail.ndjson"))
		got := ""
		for _, m := range ids.FindAllStringSubmatch(string(mail), -1) {
			got += m[1] + " "
		}
		info := exec.Command("thread", "info", "--thread", filepath.Join(dir, "inbox"))
		orders, _ := os.ReadFile(filepath.Join(dir, "orders.txt"))
		if text, err := info.Output(); got == "2 4 " && string(orders) == "one pizza\n" && err == nil && strings.Contains(string(text), "last_acked_id: 4\n") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the handler received %q, want the events 2 and 4", got)
		}
	}
}
