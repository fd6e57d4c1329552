package serve

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestAnswersOfHosts: the answer of two hosts is the same whichever comes first. Lanes and runs are in
// the order in which one host lists them, and lanes of one name are one, with the sums.
func TestAnswersOfHosts(t *testing.T) {
	at := time.Unix(1, 0)
	one := Answer{Count: 1, Ended: true, Lanes: []Lane{{"a", 1, 1, 0, 0}, {"main", 3, 2, 1, 70}},
		Runs: []Run{{Consumer: "c", State: "waiting", Since: at.Add(1)}, {Consumer: "c", Event: 4}}}
	other := Answer{Count: 2, Lanes: []Lane{{"b", 1, 0, 0, 0}, {"main", 4, 1, 2, 50}},
		Runs: []Run{{Consumer: "b", State: "running"}, {Consumer: "c", State: "running", Since: at}}}
	want := Answer{Count: 3, Lanes: []Lane{{"a", 1, 1, 0, 0}, {"b", 1, 0, 0, 0}, {"main", 7, 3, 3, 70}},
		Runs: []Run{other.Runs[0], other.Runs[1], one.Runs[0], one.Runs[1]}}
	for _, both := range [][2]Answer{{one, other}, {other, one}} {
		first := both[0]
		first.Lanes, first.Runs = slices.Clone(first.Lanes), slices.Clone(first.Runs)
		if got := first.with(&both[1]); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
}
