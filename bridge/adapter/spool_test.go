package adapter

import (
	"context"
	"fmt"
	"testing"
	"time"

	"thread/bridge/trigger"
)

// What is sent may be acknowledged before its sender has synced the directory: that is not an error
// of the sender. Two consumers that read one directory do not end each other.
func TestSpoolIsEmptiedAtOnce(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	sent := make(chan error, 1)
	const messages = 300
	go func() {
		defer stop()
		for n := range messages {
			if err := Spool(dir, &trigger.Message{ID: fmt.Sprint(n)}, nil); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	ended := make(chan error, 2)
	for range 2 {
		s := &spool{dir: dir}
		if err := s.Connect(ctx, nil); err != nil {
			t.Fatal(err)
		}
		go func() {
			for ctx.Err() == nil {
				ms, err := s.take(10)
				if err == nil {
					err = s.Ack(ctx, ms)
				}
				if err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}
