package kafka

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"thread/engine"
)

// Proof 6: what cannot be an event goes to the dead letter queue, once each with its
// history, however large it is; what comes behind it is stored.
func TestPoison(t *testing.T) {
	for _, small := range []bool{false, true} { // the dead letter topic's limit
		t.Run(fmt.Sprint(small), func(t *testing.T) { poison(t, small) })
	}
}

func poison(t *testing.T, small bool) {
	c := broker(t, kfake.SeedTopics(1, "orders"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "100000000"}))
	cl := client(t, c, kgo.ProducerBatchMaxBytes(90<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if small {
		dlq := kadm.NewClient(cl)
		limit := "1000000"
		if rs, err := dlq.CreateTopic(context.Background(), 1, 1, map[string]*string{"max.message.bytes": &limit}, "orders.dlq"); err != nil || rs.Err != nil {
			t.Fatal(rs, err)
		}
	}
	r := start(t, settings(c), nil)
	for i, body := range []string{`{"n":`, "{\"n\":\"\xff\"}", `{"n":"` + strings.Repeat("x", 65<<20) + `"}`} {
		produce(t, cl, record("k", body, "x-message-id", string(rune('a'+i))))
		produce(t, cl, record("k", `{"good":true}`))
		sent := time.Now()
		r.Events(i + 1)
		t.Logf("behind %d bytes: stored %v after both were sent", len(body), time.Since(sent).Round(time.Millisecond))
	}
	dead := read(t, c, "orders.dlq", 3)
	if len(dead) != 3 {
		t.Fatalf("%d dead", len(dead))
	}
	for i, d := range dead {
		h := headersOf(d)
		if h["x-message-id"] != string(rune('a'+i)) || h["x-dlq-status"] != "parse_error" || h["x-dlq-reason"] == "" || h["x-dlq-deliveries"] != "1" {
			t.Errorf("%v", h)
		}
	}
	if n := len(dead[2].Value); small != (n < 65<<20) || small != (headersOf(dead[2])["x-dlq-body-bytes"] == fmt.Sprint(65<<20+8)) {
		t.Errorf("of the large one %d bytes are left: %v", n, headersOf(dead[2]))
	}
	es, err := r.Thread.Peek(context.Background(), engine.Query{})
	if err != nil || len(es) != 3 {
		t.Errorf("%d events, %v", len(es), err)
	}
}
