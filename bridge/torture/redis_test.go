package torture

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"thread/bridge/internal/brokertest"
)

// redisQueue is a stream with a separate group: positions.
func redisQueue(t *testing.T) *queue { return redisOf(t, "") }

// redisShared is a stream whose group is said to be shared: keys.
func redisShared(t *testing.T) *queue { return redisOf(t, ", shared: true, min_idle: 1s") }

func redisOf(t *testing.T, more string) *queue {
	brokertest.Needed(t, "Redis", "127.0.0.1:6379")
	dial := func() redis.Conn {
		c, err := redis.Dial("tcp", "127.0.0.1:6379")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // nothing is waited for
		return c
	}
	send, ask := dial(), dial()
	name := fmt.Sprintf("k%d", time.Now().UnixNano())
	if _, err := ask.Do("XGROUP", "CREATE", name, "g", "0", "MKSTREAM"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := ask.Do("DEL", name, name+".dlq"); err != nil {
			t.Error(err)
		}
	})
	return &queue{
		dead:   []string{name, name + ".dlq"},
		config: fmt.Sprintf("queue_name: %s\nconsumer_group: g\nadapter: {type: redis, connection: {address: \"127.0.0.1:6379\"%s}}\n", name, more),
		send: func(n int64) error {
			_, err := send.Do("XADD", name, "*", "body", fmt.Sprintf(`{"n":%d}`, n))
			return err
		},
		empty: func() bool {
			pending, err := redis.Values(ask.Do("XPENDING", name, "g"))
			return err == nil && len(pending) > 0 && pending[0] == int64(0)
		},
	}
}

// redisTarget is a stream, which the publisher makes.
func redisTarget(t *testing.T) *target {
	brokertest.Needed(t, "Redis", "127.0.0.1:6379")
	c, err := redis.Dial("tcp", "127.0.0.1:6379")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("o%d", time.Now().UnixNano())
	t.Cleanup(func() {
		_, err := c.Do("DEL", name)
		if err := errors.Join(err, c.Close()); err != nil {
			t.Error(err)
		}
	})
	return &target{
		config: fmt.Sprintf("queue_name: %s\nadapter: {type: redis, connection: {address: \"127.0.0.1:6379\"}}\n", name),
		read: func(int) (bodies []string) {
			entries, err := redis.Values(c.Do("XRANGE", name, "-", "+"))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				fields, err := redis.StringMap(e.([]any)[1], nil)
				if err != nil {
					t.Fatal(err)
				}
				bodies = append(bodies, fields["body"])
			}
			return bodies
		},
	}
}
