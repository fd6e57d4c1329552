//go:build linux

package survive

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"thread/history"
)

// TestRate: 16 workers, which are killed over and over, and whose clock is set back and
// forth, never start more runs in one second of the outside clock than the limit says.
// THREAD_RATE=10m makes it long.
func TestRate(t *testing.T) {
	length, err := time.ParseDuration(cmpOr(os.Getenv("THREAD_RATE"), "3s"))
	if err != nil {
		t.Fatal(err)
	}
	const rate, workers = 50, 16
	dir := t.TempDir()
	h := openJobs(t, dir)
	if err := h.Put(ctx, &history.LimitRow{Scope: history.StartsOfAll, Rate: rate, PerMS: 1000}); err != nil {
		t.Fatal(err)
	}
	set := func(shift int) {
		path := filepath.Join(dir, "clock")
		if err := os.WriteFile(path+".new", fmt.Append(nil, shift), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	queue(t, h, rate*(2+int(length.Seconds())), func(i int) (history.RunRow, history.Job) {
		return history.RunRow{ID: fmt.Sprint("r", i)}, history.Job{}
	})
	c := newCrew(t, "rate", dir, workers)
	ended := make(chan struct{})
	go c.killing(rate/2, ended)
	shifts := []int{86400, -3600, 0, -1, 3600, -7200}
	begun := time.Now()
	for i := 0; time.Since(begun) < length || len(c.lines()) < 2*rate+1; i++ {
		time.Sleep(length / time.Duration(max(4, int(length.Seconds())))) // how long a setting lasts
		set(shifts[i%len(shifts)])
		if time.Since(begun) > length+runLimit {
			t.Fatalf("%d starts", len(c.lines()))
		}
	}
	close(ended)
	c.end()
	lines := c.lines()
	starts, commands := make([][2]int64, len(lines)), make([]int64, len(lines))
	for i, line := range lines {
		var id string
		if n, err := fmt.Sscan(line, &starts[i][0], &starts[i][1], &commands[i], &id); n != 4 {
			t.Fatalf("%q: %v", line, err)
		}
	}
	slices.SortFunc(starts, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	slices.Sort(commands)
	for i := range starts[:len(starts)-rate] {
		// Of rate+1 starts, the latest that the last can have been, and the earliest of the first.
		if apart := starts[i+rate][1] - starts[i][0]; apart < 1000 {
			t.Errorf("%d starts within %d ms, from %d on", rate+1, apart, starts[i][0]-starts[0][0])
		}
	}
	t.Logf("%d starts in %v, with %d kills and %d settings of the clock; at most %d starts and %d commands in a second", len(starts), time.Since(begun).Round(time.Second),
		c.kills, int(time.Since(begun).Seconds()), most(column(starts, 1)), most(commands))
}

func column(list [][2]int64, i int) (col []int64) {
	for _, x := range list {
		col = append(col, x[i])
	}
	slices.Sort(col)
	return col
}

// most returns how many of the times, which rise, are within one second at most.
func most(times []int64) (n int) {
	from := 0
	for i, at := range times {
		for times[from]+1000 <= at {
			from++
		}
		n = max(n, i-from+1)
	}
	return n
}
