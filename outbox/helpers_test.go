package outbox

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"thread/engine"
)

var ctx = context.Background()

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clock is a clock that stands until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.UnixMilli(1_800_000_000_000)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newThread(t testing.TB, o ...engine.Option) *engine.Thread {
	t.Helper()
	th, err := engine.Init(filepath.Join(t.TempDir(), "t"), o...)
	noError(t, err)
	return th
}

func insert(t testing.TB, th *engine.Thread, m Message) (in Inserted) {
	t.Helper()
	noError(t, th.Update(ctx, func(tx *engine.Tx) (err error) { in, err = Insert(tx, m); return err }))
	return in
}

func get(t testing.TB, th *engine.Thread, id int64) (rec Record) {
	t.Helper()
	noError(t, th.View(ctx, func(tx *engine.Tx) (err error) {
		var ok bool
		if rec, ok, err = Get(tx, id); !ok && err == nil {
			t.Errorf("no record %d", id)
		}
		return err
	}))
	return rec
}

func set(t testing.TB, th *engine.Thread, change func(s *Settings)) {
	t.Helper()
	noError(t, th.Update(ctx, func(tx *engine.Tx) error {
		s, err := ReadSettings(tx)
		if err != nil {
			return err
		}
		change(&s)
		return WriteSettings(tx, s)
	}))
}

func notifications(t testing.TB, th *engine.Thread, user string) (list []Notification) {
	t.Helper()
	noError(t, th.View(ctx, func(tx *engine.Tx) (err error) { list, err = Notifications(tx, user, false, 0); return err }))
	return list
}

func records(t testing.TB, th *engine.Thread, q Query) (list []Record) {
	t.Helper()
	q.Limit = 1 << 20
	noError(t, th.View(ctx, func(tx *engine.Tx) (err error) { list, err = List(tx, q); return err }))
	return list
}

// once hands on what is due, with a shell command as the handler.
func once(t testing.TB, th *engine.Thread, handler string) Summary {
	t.Helper()
	o := Options{Mode: Once}
	if handler != "" {
		o.Command = []string{"sh", "-c", handler}
	}
	sum, err := Relay(ctx, th, o)
	noError(t, err)
	return sum
}

// reply is a message that triggers agent 5.
func reply(comment int64) Message {
	return Message{EventType: CommentReplied, ActorUserID: NumberID(12), TargetUserID: NumberID(5), TargetUserType: Agent,
		ThreadID: NumberID(101), CommentID: NumberID(comment)}
}

// like is a message that notifies user 7.
func like(comment int64) Message {
	return Message{EventType: LikeCreated, ActorUserID: NumberID(12), TargetUserID: NumberID(7), TargetUserType: Human,
		ThreadID: NumberID(101), CommentID: NumberID(comment)}
}
