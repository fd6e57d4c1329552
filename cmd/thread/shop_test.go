package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// shopping is examples/shop in a directory, with its processes.
type shopping struct {
	*testing.T
	dir, shop string // the directory, and the address of the server
}

// command returns a command of the shop.
func (s *shopping) command(args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "THREAD_DIR="+filepath.Join(s.dir, "shop.thread"), "THREAD_DISPATCH=spawn", "HOME="+s.dir)
	return cmd
}

// run runs a command of the shop, and returns what it prints.
func (s *shopping) run(args ...string) string {
	s.Helper()
	out, err := s.command(args...).CombinedOutput()
	if err != nil {
		s.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// start starts a process of the shop until the test ends, and returns its first line.
func (s *shopping) start(wait bool, args ...string) (first string) {
	s.Helper()
	cmd := s.command(args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		_ = cmd.Wait()
	})
	if !wait {
		return ""
	}
	r := bufio.NewReader(out)
	if first, err = r.ReadString('\n'); err != nil {
		s.Fatalf("%v prints nothing: %v", args, err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return strings.TrimSpace(first)
}

// until waits until ok.
func (s *shopping) until(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("not %s:\n%s", what, s.run("thread", "runs", "--all"))
		}
	}
}

// order posts to the server, and returns the id of the job.
func (s *shopping) order(path, body string, want int) string {
	s.Helper()
	r, err := http.Post("http://"+s.shop+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	defer r.Body.Close()
	id, _ := io.ReadAll(r.Body)
	if r.StatusCode != want {
		s.Fatalf("%s %s: %d %s", path, body, r.StatusCode, id)
	}
	return strings.TrimSpace(string(id))
}

func (s *shopping) file(name string) string {
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.Fatal(err)
	}
	return string(b)
}

// TestShop plays examples/shop with its server, worker and page.
func TestShop(t *testing.T) {
	s := &shopping{T: t, dir: filepath.Join(t.TempDir(), "a shop")}
	if err := os.CopyFS(s.dir, os.DirFS("../../examples/shop")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { awaitRest(s.dir) })
	program := filepath.Join(t.TempDir(), "shop")
	if out, err := exec.Command("go", "build", "-o", program, "../../examples/shop").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.run("sh", "setup.sh", "shop.thread")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.shop = free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	s.start(false, program, "shop.thread", s.shop)
	s.until("listening", func() bool {
		c, err := net.Dial("tcp", s.shop)
		return err == nil && c.Close() == nil
	})

	// Orders: a second click is one mail. The server for mails is down, then not.
	if err := os.WriteFile(filepath.Join(s.dir, "down"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	id := s.order("/orders", `{"order":7,"to":"ann@example.org"}`, http.StatusAccepted)
	if again := s.order("/orders", `{"order":7,"to":"ann@example.org"}`, http.StatusAccepted); again != id {
		t.Errorf("a second click is another job: %s, %s", id, again)
	}
	s.order("/orders", `{"order":-7}`, http.StatusBadRequest)
	s.start(false, "thread", "run", "work", "--parallel", "4", "--", "./job.sh")
	s.until("tried again", func() bool { return strings.Contains(s.run("thread", "run", "show", id), "attempt ") })
	contact := s.run("sh", "-c", `echo '{"to":"bob@example.org"}' | HTTP_X_FORM_ID=f1 ./contact.sh`)
	if !strings.HasPrefix(contact, "Status: 202 ") {
		t.Fatal(contact)
	}

	// The night: the report waits for both mails.
	s.run("thread", "push", "--source", "shop", "--type", "nightly", "--content", "")
	report := regexp.MustCompile(`(?m)^run (\S+)  agent report  queued for \S+  after group mails-`)
	s.until("a report that waits", func() bool { return report.MatchString(s.run("thread", "runs")) })
	night := report.FindStringSubmatch(s.run("thread", "runs"))[1]
	if sent := s.file("sent.txt"); sent != "" {
		t.Errorf("the server for mails was down, and %q was sent", sent)
	}
	if err := os.Remove(filepath.Join(s.dir, "down")); err != nil {
		t.Fatal(err)
	}
	if result := s.run("thread", "run", "result", "--wait", "--timeout", "1m", night); result != "{\"mails\":2}\n" {
		t.Errorf("the report is %s", result)
	}
	if sent := s.file("sent.txt"); strings.Count(sent, `{"order":7,"to":"ann@example.org"}`) != 1 || strings.Count(sent, "\n") != 2 {
		t.Errorf("sent: %s", sent)
	}

	// Refunds: one is approved on the page, one by command, and one denied.
	var refunds []string
	for _, order := range []string{"7", "8", "9"} {
		refunds = append(refunds, s.order("/refunds", `{"order":`+order+`,"to":"ann@example.org","euros":80}`, http.StatusAccepted))
	}
	s.until("three refunds that wait", func() bool { return strings.Count(s.run("thread", "runs"), "waiting for") == 3 })
	s.approveOnPage(refunds[0])
	s.run("thread", "approve", refunds[1], "--by", "ann")
	s.run("thread", "deny", refunds[2], "--reason", "too late")
	for _, id := range refunds[:2] {
		s.run("thread", "run", "result", "--wait", "--timeout", "1m", id)
	}
	if out, err := s.command("thread", "run", "result", "--wait", "--timeout", "1m", refunds[2]).CombinedOutput(); err == nil {
		t.Errorf("a refund that was denied: %s", out)
	}
	paid := s.file("refunds.txt")
	for i, id := range refunds {
		if n := strings.Count(paid, " with key "+id+":pay\n"); n != 1 && i < 2 || n != 0 && i == 2 {
			t.Errorf("refund %d was paid %d times: %s", i, n, paid)
		}
	}
}

// approveOnPage approves a refund as a browser does: with the form of the page of the run.
func (s *shopping) approveOnPage(run string) {
	s.Helper()
	opened := strings.TrimPrefix(s.start(true, "thread", "serve", "--thread", "shop.thread", "--ui", "--listen", "127.0.0.1:0"), "Open ")
	at, err := url.Parse(opened)
	if err != nil || at.Host == "" {
		s.Fatalf("%s: %v", opened, err)
	}
	jar, _ := cookiejar.New(nil) // never fails
	client := http.Client{Jar: jar}
	get := func(address string) (body string) {
		s.until("there", func() bool {
			r, err := client.Get(address)
			if err != nil {
				s.Fatal(err)
			}
			defer r.Body.Close()
			text, _ := io.ReadAll(r.Body)
			body = string(text)
			return r.StatusCode == http.StatusOK
		})
		return body
	}
	get(opened)
	page := get("http://" + at.Host + "/threads/shop.thread/runs/" + run)
	form := url.Values{"run": {run}, "do": {"approve"}}
	for _, m := range regexp.MustCompile(`name="(form|key|back)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		form.Set(m[1], m[2])
	}
	if !strings.Contains(page, "Waits for an approval") || form.Get("form") == "" || form.Get("key") == "" {
		s.Fatalf("no form for an approval in\n%s", page)
	}
	q, err := http.NewRequest("POST", "http://"+at.Host+"/threads/shop.thread/act", strings.NewReader(form.Encode()))
	if err != nil {
		s.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	q.Header.Set("Origin", "http://"+at.Host)
	r, err := client.Do(q)
	if err != nil {
		s.Fatal(err)
	}
	defer r.Body.Close()
	if body, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusOK {
		s.Fatalf("approve: %d %s", r.StatusCode, body)
	}
}
