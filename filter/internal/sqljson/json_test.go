package sqljson

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestIsJSON holds texts, right and spoiled, against encoding/json.
func TestIsJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	texts := []string{"", " ", "{}", " {} ", "{}\x00", "\x00{}", "[1,2", "[1,]", "01", "-", "1e", "\"\x1f\"", `"\u12g4"`, "nul", "true false", strings.Repeat("[", 900) + strings.Repeat("]", 900)}
	for range 20_000 {
		b := []byte(`{"n": -12.5e+3, "text":"so \"he\" \u00e4\n said", "list":[1,0,true,false,null,{"a":{}}], "":[]}`)
		for range r.IntN(4) {
			if len(b) == 0 {
				break
			}
			i := r.IntN(len(b))
			switch r.IntN(3) {
			case 0:
				b[i] = "{}[]\",:\\0e-+.u \x00\x19"[r.IntN(17)]
			case 1:
				b = append(b[:i], b[i+1:]...)
			default:
				b = b[:i+1]
			}
		}
		texts = append(texts, string(b))
	}
	valid := 0
	for _, text := range texts {
		want := json.Valid([]byte(text))
		if got := Valid(text); got != want {
			t.Fatalf("%q: %t, want %t", text, got, want)
		}
		if want {
			valid++
		}
	}
	if valid < 1000 || valid > len(texts)-1000 {
		t.Errorf("%d of %d are JSON", valid, len(texts))
	}
	if Valid(strings.Repeat("[", 1001) + strings.Repeat("]", 1001)) {
		t.Error("deeper than 1,000")
	}
}
