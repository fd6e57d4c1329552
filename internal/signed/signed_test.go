package signed

import (
	"strings"
	"testing"
)

// keeper keeps a key in memory.
type keeper struct{ data []byte }

func (k *keeper) Load() []byte     { return k.data }
func (k *keeper) Save(data []byte) { k.data = data }

// TestNumber: a text counts for its key and owner alone, however it is changed.
func TestNumber(t *testing.T) {
	k := NewKey()
	text := k.Text(7, "/srv/a", "worker")
	if n, ok := k.Number(text, "/srv/a", "worker"); n != 7 || !ok {
		t.Fatalf("%s: %d %v", text, n, ok)
	}
	for _, owner := range [][]string{nil, {"/srv/a"}, {"/srv/a", "other"}, {"/srv/b", "worker"}, {"/srv/aw", "orker"}, {"/srv/a", "worker", ""}, {"/srv/aworker"}} {
		if n, ok := k.Number(text, owner...); ok {
			t.Errorf("%q: %d", owner, n)
		}
	}
	_, mac, _ := strings.Cut(text, ".")
	for _, other := range []string{"", "7", "7.", "8." + mac, "." + mac, mac, "7." + mac + "A", "7." + mac[1:], text + ".", " " + text, "x." + mac, "99999999999999999999." + mac} {
		if n, ok := k.Number(other, "/srv/a", "worker"); ok {
			t.Errorf("%q: %d", other, n)
		}
	}
	for i := range mac {
		other := []byte(text)
		other[len("7.")+i] ^= 1
		if n, ok := k.Number(string(other), "/srv/a", "worker"); ok {
			t.Errorf("%q: %d", other, n)
		}
	}
	if n, ok := NewKey().Number(text, "/srv/a", "worker"); ok {
		t.Errorf("by another key: %d", n)
	}
}

// TestKeptKey: the key outlasts the process where it can be kept, and one that was damaged
// is made again.
func TestKeptKey(t *testing.T) {
	var kept keeper
	text := KeptKey(&kept).Text(1)
	if n, ok := KeptKey(&kept).Number(text); n != 1 || !ok {
		t.Error("the key is another one")
	}
	kept.data = kept.data[1:]
	if _, ok := KeptKey(&kept).Number(text); ok || len(kept.data) != keyBytes {
		t.Errorf("a short key counts, or stays: %d bytes", len(kept.data))
	}
	if _, ok := KeptKey(nil).Number(text); ok {
		t.Error("a key of nowhere is the kept one")
	}
}
