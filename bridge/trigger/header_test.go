package trigger

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// An empty name is a name like any other, and never the answer for a missing header.
func TestPropertyHeader(t *testing.T) {
	name := rapid.SampledFrom([]string{"", " ", "x-message-id", "X-MESSAGE-ID", "X-Message-Id", "x-dedup-key", "x"})
	rapid.Check(t, func(rt *rapid.T) {
		headers := rapid.MapOf(name, rapid.StringMatching(`[a-c]?`)).Draw(rt, "headers")
		asked, want, first := name.Draw(rt, "asked"), "", []string{}
		for k := range headers {
			if strings.EqualFold(k, asked) {
				first = append(first, k)
			}
		}
		slices.Sort(first)
		if v, ok := headers[asked]; ok {
			want = v
		} else if len(first) > 0 {
			want = headers[first[0]]
		}
		if got := Header(headers, asked); got != want {
			rt.Fatalf("%q in %q: %q, not %q", asked, headers, got, want)
		}
	})
}

// Three messages with a header whose name is empty: each has its own identity, and
// none takes its type or tenant from that header.
func TestEmptyHeaderName(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) { c.Tenant = Tenancy{Trust: true} })
	r.start()
	for i := range 3 {
		r.send(fmt.Sprint("m-", i), `{}`, "", "same")
	}
	r.acked(3)
	r.stop()
	es := r.events()
	if len(es) != 3 {
		t.Fatalf("%d events, not 3", len(es))
	}
	for i, e := range es {
		if e.Type != defaultEventName || !strings.Contains(e.Content, `"tenant_id":"default"`) || !strings.Contains(e.Content, `{"":"same"}`) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
}

// A signature of either form is for one id, tenant and producer only.
func TestPropertySignature(t *testing.T) {
	tenancy := Tenancy{Trust: true, SecretEnvs: []string{"X"}}
	part := rapid.StringMatching(`[a:1]{1,4}`)
	v1 := func(id, tenant, producer string) string {
		return hex.EncodeToString(sign("secret", signedTextV1(id, tenant, producer)))
	}
	rapid.Check(t, func(rt *rapid.T) {
		id, tenant, producer := part.Draw(rt, "id"), part.Draw(rt, "tenant"), part.Draw(rt, "producer")
		signature := Sign("secret", id, tenant, producer)
		old := rapid.Bool().Draw(rt, "old")
		if old { // its signer may sign no other tenant and producer
			tenant, producer = strings.ReplaceAll(tenant, ":", ""), strings.ReplaceAll(producer, ":", "")
			signature = v1(id, tenant, producer)
		}
		given := []string{id, tenant, producer}
		if rapid.Bool().Draw(rt, "again") { // the same bytes, cut in another place
			all := strings.Split(strings.Join(given, ":"), ":")
			i := rapid.IntRange(1, len(all)-2).Draw(rt, "i")
			j := rapid.IntRange(i+1, len(all)-1).Draw(rt, "j")
			given = []string{strings.Join(all[:i], ":"), strings.Join(all[i:j], ":"), strings.Join(all[j:], ":")}
		}
		m := Message{ID: given[0], Headers: map[string]string{HeaderTenant: given[1], HeaderProducer: given[2], HeaderSignature: signature}}
		want := DefaultTenant
		if slices.Equal(given, []string{id, tenant, producer}) && given[1] != "" {
			want = given[1]
		}
		if got := tenancy.tenant(&m, []string{"other", "secret"}); got != want {
			rt.Fatalf("%q signed for %q, %q, %q: %q, not %q", given, id, tenant, producer, got, want)
		}
	})
}
