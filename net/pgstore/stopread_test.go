package pgstore

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"thread/event"
	"thread/internal/store"
)

// unread is a connection that stops, once for all, when it has asked for a content: no process
// reads the answer until goOn is closed.
type unread struct {
	net.Conn
	asked   *atomic.Bool
	stopped chan struct{}
	goOn    <-chan struct{}
}

func (c *unread) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if bytes.Contains(b, []byte("SELECT content FROM events")) && !c.asked.Swap(true) {
		close(c.stopped)
	}
	return n, err
}

func (c *unread) Read(b []byte) (int, error) {
	select {
	case <-c.stopped:
		<-c.goOn
	default:
	}
	return c.Conn.Read(b)
}

// A holder that stops while the server sends it more than the connection takes, with the
// thread's row locked, keeps no process from taking its turn: the server is not idle then.
func TestStoppedInAnAnswer(t *testing.T) {
	ctx := context.Background()
	a := newThread(t, newSchema(t))
	if strings.HasPrefix(a.config.Host, "/") {
		t.Skip("the server is told of no end of a socket that is no connection of TCP")
	}
	two := opened(t, a, plain{})
	large := []event.Draft{{Source: "s", Type: "t", Content: strings.Repeat("x", 48<<20)}}
	if _, err := two.Push(ctx, large); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Bool
	goOn, stopped, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	slow := *a
	slow.config = a.config.Copy()
	dial := a.config.DialFunc
	slow.config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &unread{c, &asked, stopped, goOn}, err
	}
	one := opened(t, &slow, plain{})
	one.idleTimeout = 500 * time.Millisecond
	if err := one.TakeTurn(ctx, "w", Lease); err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- one.Update(ctx, func(u store.Session) error {
			tx := u.(plainSession).tx
			if _, _, err := tx.Event(1); err != nil {
				return err
			}
			return tx.Put(store.Dead, []byte("1"), nil)
		})
	}()
	<-stopped
	on(t, a, "UPDATE turns SET until = clock_timestamp()")
	err := errors.Join(two.TakeTurn(ctx, "w", Lease), put(two, "2"))
	close(goOn)
	if err != nil {
		t.Errorf("the next holder: %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the one that was stopped has stored something")
	}
	if rows := on(t, a, "SELECT key FROM records"); len(rows) != 1 || string(rows[0][0]) != "2" {
		t.Errorf("stored: %q", rows)
	}
}
