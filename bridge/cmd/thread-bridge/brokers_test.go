package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	amqp "github.com/rabbitmq/amqp091-go"
)

// TestBrokerPages: the commands of these pages in docs/guides lead to a first event,
// on the brokers of this host, with queues of another name.
func TestBrokerPages(t *testing.T) {
	bin := programs(t)
	for _, name := range []string{"rabbitmq", "redis"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile("../../../docs/guides/" + name + ".md")
			if err != nil {
				t.Fatal(err)
			}
			script := regexp.MustCompile("(?s)```sh[^\n]*\n(.*?)```").FindSubmatch(data)
			server := regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindString(string(script[1]))
			if c, err := net.DialTimeout("tcp", server, time.Second); err == nil {
				c.Close()
			} else if os.Getenv("THREAD_BRIDGE_BROKERS") != "" {
				t.Fatal(err)
			} else {
				t.Skip(err)
			}
			queue := fmt.Sprintf("page%d", time.Now().UnixNano())
			out, err := shell(t, bin, regexp.MustCompile(`\borders\b`).ReplaceAllString(string(script[1]), queue))
			if err != nil || !strings.Contains(out, "order_placed\t") && !strings.Contains(out, `"type":"order_placed"`) {
				t.Errorf("%v\n%s", err, out)
			}
			forget(t, server, queue)
		})
	}
}

// programs returns a directory with thread and thread-bridge, which are this binary.
func programs(t *testing.T) string {
	t.Helper()
	exe, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"thread", "thread-bridge"} {
		body, err := os.ReadFile(exe)
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, name), body, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

// shell runs a script with these programs in a separate directory.
func shell(t *testing.T, bin, script string) (string, error) {
	t.Helper()
	sh := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
	sh.Dir = t.TempDir()
	sh.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := sh.CombinedOutput()
	return string(out), err
}

// forget deletes what a page has made at the broker.
func forget(t *testing.T, server, queue string) {
	t.Helper()
	var err error
	switch server {
	case "127.0.0.1:5672":
		var conn *amqp.Connection
		if conn, err = amqp.Dial("amqp://" + server); err == nil {
			defer conn.Close()
			var ch *amqp.Channel
			if ch, err = conn.Channel(); err == nil {
				_, err = ch.QueueDelete(queue, false, false, false)
			}
		}
	case "127.0.0.1:6379":
		var c redis.Conn
		if c, err = redis.Dial("tcp", server); err == nil {
			defer c.Close()
			_, err = c.Do("DEL", queue)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
