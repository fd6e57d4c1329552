package trigger

import (
	"strings"
	"testing"
)

// TestBuryTooLarge: what is too large for the dead letter queue goes there as far as it
// fits, and what comes behind it is stored, whatever the bound and whatever is large.
func TestBuryTooLarge(t *testing.T) {
	for name, c := range map[string]struct {
		atMost, body, header int
		kept                 int // bytes of the body
		headers              bool
	}{
		"fits":                     {0, 100 << 10, 10, 100 << 10, true},
		"body":                     {100 << 10, 200 << 10, 10, 64 << 10, true},
		"bound below 64 KiB":       {10 << 10, 200 << 10, 10, 1 << 10, true},
		"small body, small bound":  {10 << 10, 20 << 10, 10, 1 << 10, true},
		"bound below 1 KiB":        {500, 2000, 10, 0, true},
		"headers":                  {500, 10, 2000, 0, false},
		"headers and nothing else": {500, 0, 2000, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, t.TempDir()+"/t", nil)
			r.mock.dlqAtMost = c.atMost
			r.start()
			r.send("bad", strings.Repeat("x", c.body), "h", strings.Repeat("y", c.header))
			r.send("good", `{}`)
			r.acked(2)
			r.stop()
			dead := r.mock.Dead()
			if len(dead) != 1 || len(r.events()) != 1 {
				t.Fatalf("%d dead, %d events", len(dead), len(r.events()))
			}
			d := dead[0]
			cut := 0
			if c.kept < c.body {
				cut = c.body
			}
			if len(d.Message.Body) != c.kept || (d.Message.Headers != nil) != c.headers || d.Reason.BodyBytes != cut || d.Message.ID != "bad" {
				t.Errorf("%d bytes of %d, %d headers", len(d.Message.Body), d.Reason.BodyBytes, len(d.Message.Headers))
			}
		})
	}
}
