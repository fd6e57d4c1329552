package redis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"thread/bridge/adapter"
)

// answerWithin bounds how long an answer is waited for.
const answerWithin = 30 * time.Second

// client is a connection for commands, which is made when it is needed, and again
// after it was lost.
type client struct {
	s  *adapter.Settings
	mu sync.Mutex
	c  redis.Conn
}

// command is a name with its arguments.
type command []any

// do sends one command. A refusal is a redis.Error; after any other error it is not
// known whether the command was carried out.
func (k *client) do(ctx context.Context, cmd string, args ...any) (any, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := k.open(ctx); err != nil {
		return nil, err
	}
	r, err := redis.DoContext(k.c, ctx, cmd, args...)
	return r, k.checked(err)
}

// all sends commands that are carried out together, or not at all. An answer may be
// a separate error.
func (k *client) all(ctx context.Context, cmds []command) ([]any, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := k.open(ctx); err != nil {
		return nil, err
	}
	err := k.c.Send("MULTI")
	for _, c := range cmds {
		if err == nil {
			err = k.c.Send(c[0].(string), c[1:]...)
		}
	}
	if err != nil {
		return nil, k.checked(err)
	}
	answers, err := redis.Values(redis.DoContext(k.c, ctx, "EXEC"))
	if err = k.checked(err); err == nil && len(answers) != len(cmds) {
		err = errors.New("fewer answers than there were commands")
	}
	return answers, err
}

func (k *client) open(ctx context.Context) (err error) {
	if k.c == nil {
		k.c, err = dial(ctx, k.s)
	}
	return err
}

// checked closes a connection that has failed.
func (k *client) checked(err error) error {
	var answer redis.Error
	if err != nil && !errors.As(err, &answer) && k.c != nil {
		_ = k.c.Close() // it has failed
		k.c = nil
	}
	return err
}

func (k *client) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.c != nil {
		_ = k.c.Close() // nothing is waited for
		k.c = nil
	}
}
