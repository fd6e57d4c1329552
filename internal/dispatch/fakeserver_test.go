//go:build linux

package dispatch

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"

	"thread/engine"
)

// fakeServer is the server's side of the turns of a run.
type fakeServer struct {
	*bench
	l net.Listener
}

// inHandlerOf starts the handler of a consumer with a server, and makes the test a part of
// that run. It returns the id of the run.
func (b *bench) inHandlerOf(consumer string) string {
	b.Helper()
	at, leave := b.fifo("at"), b.fifo("leave")
	b.subscribe(engine.Subscription{Consumer: consumer, Handler: `echo $THREAD_RUN_ID > "$D/at"; read _ < "$D/leave"; ` + drain})
	b.push("s")
	server, err := NewServer(context.Background(), b.t)
	if err != nil {
		b.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- second(server.Run(context.Background(), consumer, false, nil)) }()
	id := at.line()
	b.Cleanup(func() {
		leave.say()
		if err := <-ran; err != nil {
			b.Error(err)
		}
		server.Close()
	})
	b.Setenv(envDir, b.t.Dir())
	b.Setenv(envConsumer, consumer)
	b.Setenv(envRunID, id)
	return id
}

func (b *bench) fakeServer() *fakeServer {
	b.Helper()
	address, done, err := SocketAddress(b.r.run, ControlSocket)
	if err != nil {
		b.Fatal(err)
	}
	defer done()
	l, err := net.Listen("unix", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return &fakeServer{b, l}
}

// accept waits for a connection, answers its first request, and returns that.
func (s *fakeServer) accept(answer string) (c *fakeConn, request map[string]string) {
	conn, err := s.l.Accept()
	if err != nil {
		return nil, nil // the test has ended
	}
	conn.SetDeadline(time.Now().Add(patience))
	c = &fakeConn{s.bench, conn, json.NewDecoder(conn)}
	if err := c.d.Decode(&request); err != nil {
		s.Errorf("the first request: %v", err)
	}
	c.say(answer)
	return c, request
}

type fakeConn struct {
	*bench
	net.Conn
	d *json.Decoder
}

func (c *fakeConn) say(line string) {
	if _, err := io.WriteString(c.Conn, line+"\n"); err != nil {
		c.Errorf("%s: %v", line, err)
	}
}

// expect requires the next request.
func (c *fakeConn) expect(want TurnRequest) {
	c.Helper()
	var got TurnRequest
	if err := c.d.Decode(&got); err != nil {
		c.Fatalf("%v, want %+v", err, want)
	}
	key := func(r TurnRequest) string {
		if r.Key == nil {
			return "none"
		}
		return "key " + *r.Key
	}
	gotKey, wantKey := key(got), key(want)
	if got.Key, want.Key = nil, nil; got != want || gotKey != wantKey {
		c.Errorf("%+v %s, want %+v %s", got, gotKey, want, wantKey)
	}
}

// joined returns the turns of a run and the server's side of their connection.
func (s *fakeServer) joined(held *ConsumerLock) (*Turns, *fakeConn) {
	s.Helper()
	conns := make(chan *fakeConn, 1)
	go func() {
		c, _ := s.accept("{}")
		conns <- c
	}()
	q := held.Turns()
	if q == nil {
		s.Fatal("the server is not asked")
	}
	return q, <-conns
}

type waited struct {
	turn *Turn
	err  error
}

func wantTurn(ctx context.Context, q *Turns, slot int, key *string, event int64) <-chan waited {
	got := make(chan waited, 1)
	go func() {
		t, err := q.Wait(ctx, slot, key, event)
		got <- waited{t, err}
	}()
	return got
}

func (b *bench) await(c <-chan waited) waited {
	b.Helper()
	select {
	case w := <-c:
		return w
	case <-time.After(patience):
		b.Fatal("it waits for ever")
	}
	return waited{}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (b *bench) lockedInHandler(consumer string) *ConsumerLock {
	b.Helper()
	held, err := LockConsumer(context.Background(), b.t, consumer)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { must2(b, held.Release(context.Background())) })
	return held
}

func must2(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
