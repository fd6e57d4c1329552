package redis

import (
	"context"
	"testing"

	"thread/bridge/internal/brokertest"
)

// Proof 3: a second bridge joins a shared group for a while.
func TestJoinAndLeave(t *testing.T) {
	b := newBox(t, true)
	out := &client{s: b.settings()} // the other one is asked by the test
	defer out.close()
	brokertest.JoinAndLeave(t, b.broker(), brokertest.Rounds(20), func(body, id string) error {
		_, err := out.do(context.Background(), "XADD", b.stream, "*", "body", body, "x-message-id", id)
		return err
	})
}
