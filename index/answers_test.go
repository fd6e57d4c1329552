package index

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestAnswers compares Answers with a map, over ids that lie close together and far
// apart.
func TestAnswers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for round := range 60 {
		var a Answers
		model, rest := map[uint32]Answer{}, uint32(0)
		span := []uint32{200, 5000, 1 << 19, 1<<32 - 1}[round%4]
		id := func() uint32 { return 1 + random.Uint32N(span) }
		get := func(id uint32) Answer {
			if v := model[id]; v != Unasked || id > rest {
				return v
			}
			return None
		}
		for range 300 {
			switch random.IntN(20) {
			case 0:
				n := id()
				a.SetRest(n)
				rest = max(rest, n)
			case 1:
				if random.IntN(20) == 0 {
					a.Clear()
					clear(model)
					rest = 0
				}
			default:
				n, v := id(), Answer(1+random.IntN(3))
				if random.IntN(2) == 0 {
					v = None
				}
				a.Set(n, v)
				model[n] = v
			}
		}
		ids := []uint32{1, rest, rest + 1, rest | 1023}
		least := uint32(0)
		for n := range model {
			ids = append(ids, n, n+1)
			if v := model[n]; n <= rest && v != None && (least == 0 || n < least) {
				least = n
			}
		}
		for range 200 {
			ids = append(ids, id())
		}
		var series []uint32
		for _, n := range ids {
			if n == 0 {
				continue
			}
			series = append(series, n)
			if got, want := a.Get(n), get(n); got != want {
				t.Fatalf("round %d: series %d has %d, want %d; rest %d", round, n, got, want, rest)
			}
		}
		// Least may belong to a series whose answer became None since.
		if got := a.Least(); a.Rest() != rest || least != 0 && (got == 0 || got > least) {
			t.Fatalf("round %d: least %d, want %d; rest %d, want %d", round, got, least, a.Rest(), rest)
		}
		for len(series) > 0 {
			n := min(len(series), BlockEvents)
			rising := make([]int64, n)
			for i := range rising {
				rising[i] = int64(i + 1)
			}
			blocks := []Block{NewBlock(rising, series[:n], Times{})}
			stored, err := DecodeBlock(eventKeyOf(1), EncodeBlock(rising, series[:n], Times{}))
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range append(blocks, stored) {
				for from := 0; from < b.Count; from += 1 + random.IntN(5) {
					want := from
					for want < b.Count && get(series[want]) == None {
						want++
					}
					if got := b.Next(from, &a); got != want {
						t.Fatalf("round %d: from %d the next is %d, want %d", round, from, got, want)
					}
				}
			}
			series = series[n:]
		}
	}
}

func eventKeyOf(id byte) []byte { return []byte{0, 0, 0, 0, 0, 0, 0, id} }

// TestNextFolded compares the way to the next key with a prefix, whatever the case
// of its letters, with a look at all texts.
func TestNextFolded(t *testing.T) {
	letters := "!:ABZabz\xff"
	var texts []string
	var add func(s string, n int)
	add = func(s string, n int) {
		if texts = append(texts, s); n == 0 {
			return
		}
		for i := range len(letters) {
			add(s+letters[i:i+1], n-1)
		}
	}
	add("", 4)
	slices.Sort(texts)
	for _, prefix := range []string{"a", "ab", "a:b", "aa", "!a", "z", ":", "bab", "aab", "a!"} {
		for i, key := range texts {
			if foldsTo([]byte(key), prefix) != strings.HasPrefix(strings.ToLower(key), prefix) {
				t.Fatalf("%q, %q", key, prefix)
			}
			if foldsTo([]byte(key), prefix) {
				continue
			}
			want := ""
			for _, s := range texts[i:] {
				if foldsTo([]byte(s), prefix) {
					want = s
					break
				}
			}
			if got := nextFolded([]byte(key), prefix); string(got) != want {
				t.Fatalf("after %q the next that folds to %q is %q, want %q", key, prefix, got, want)
			}
		}
	}
}
