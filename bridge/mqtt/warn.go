package mqtt

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"thread/bridge/trigger"
)

// sysTimeout is how long a broker may take to say what it is. Most do not.
const sysTimeout = 2 * time.Second

const (
	sysVersion = "$SYS/broker/version"
	sysDropped = "$SYS/broker/publish/messages/dropped"
)

// Warnings implements trigger.Warner. Mosquitto drops what exceeds the queue of a
// session, and tells neither producer nor consumer. No client can ask for the bound.
func (k *source) Warnings(ctx context.Context) (list []string) {
	k.mu.Lock()
	l := k.link
	told := make(chan *paho.Publish, 16)
	k.sys = told
	connected := l != nil && l.client != nil
	k.mu.Unlock()
	if !connected {
		return nil
	}
	if k.s.Text("password") != "" {
		if conf, err := k.s.TLS(); err == nil && conf == nil && !strings.Contains(k.s.Text("server"), "s://") {
			list = append(list, "the password goes over the network in the clear: use mqtts:// and set require_tls")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sysTimeout)
	defer cancel()
	if _, err := l.client.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: sysDropped}, {Topic: sysVersion}}}); err != nil {
		return list // an account need not have the right
	}
	dropped := "" // it is told in this order, and not at all when there are none
	for {
		select {
		case <-ctx.Done():
			return list
		case p := <-told:
			if p.Topic == sysDropped {
				dropped = fmt.Sprintf(" (%s so far, of all clients)", p.Payload)
			} else {
				return append(list, ofMosquitto(string(p.Payload), dropped)...)
			}
		}
	}
}

func ofMosquitto(version, dropped string) []string {
	if !strings.HasPrefix(version, "mosquitto") {
		return nil
	}
	return []string{fmt.Sprintf("the broker is %s: while this trigger is away, it keeps max_queued_messages for it (1000 unless configured) "+
		"and drops the others without a word%s; set max_queued_messages 0, persistence true and max_inflight_messages 65534 in mosquitto.conf", version, dropped)}
}

var (
	_ trigger.Source = (*source)(nil)
	_ trigger.Warner = (*source)(nil)
	_ trigger.Sender = (*sink)(nil)
)
