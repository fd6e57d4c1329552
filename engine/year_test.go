package engine

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/event"
)

// TestYear is a year of a thread with limits: pushes, a consumer that comes by now and
// then, reboots, a clock that is wrong after some of them, and a disk that takes nothing now and
// then. At its end it has the bytes, files, descriptors and memory that its limits allow, and a push writes no
// more than in the beginning. THREAD_YEAR is the time between two pushes, a minute for all of a
// year; a quick run has few of them, and large ones.
func TestYear(t *testing.T) {
	every, size, events := 72*time.Hour, 60000, int64(300)
	if d, err := time.ParseDuration(os.Getenv("THREAD_YEAR")); err == nil {
		every, size, events = d, 600, 3000
	}
	const most = 2 << 20
	th, now := limited(t, Limits{MaxAge: 60 * 24 * time.Hour, MaxBytes: most, MaxEvents: events})
	if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	all := int(365 * 24 * time.Hour / every)
	full, refused, largest := max(all/12, 2), 0, int64(0)
	var took []time.Duration
	var wrote []int64
	right, pushed := limitsBegin, int64(0)
	before := openDescriptors()
	for n := range all {
		right = right.Add(every)
		*now = right
		if n%10 == 9 { // a reboot, and the clock comes late
			th.Close()
			again, err := Open(th.Dir(), WithClock(func() time.Time { return *now }))
			if err != nil {
				t.Fatal(err)
			}
			th = again
			*now = time.Unix(0, 0)
			if n%20 == 19 {
				*now = right.AddDate(30, 0, 0)
			}
		}
		if n%full == full-1 {
			onFullDisk(t, func() {
				if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "x"}); err == nil || errors.Is(err, ErrUnknownOutcome) {
					t.Errorf("push %d on a full disk: %v", n, err)
				}
				if c, err := th.Retain(ctx); err == nil && c.Dropped > 0 {
					t.Errorf("%d events were dropped on a full disk", c.Dropped)
				}
				refused++
			})
		}
		began, bytes := time.Now(), writtenBytes()
		pushLimited(t, th, 1, size)
		took, wrote = append(took, time.Since(began)), append(wrote, writtenBytes()-bytes)
		pushed++
		if n%5 == 4 {
			if err := th.Ack(ctx, "c", pushed); err != nil {
				t.Fatal(err)
			}
		}
		if due, err := th.RetainDue(ctx); err != nil {
			t.Fatal(err)
		} else if due {
			retain(t, th)
		}
		if n%100 == 99 {
			largest = max(largest, bytesBelow(t, th.Dir()))
		}
	}
	info, err := os.Stat(filepath.Join(th.Dir(), "events.db"))
	if err != nil || info.Size() > most+most/4 {
		t.Errorf("events.db has %d bytes, %v", info.Size(), err)
	}
	// The database, as many bytes of lines and the same again, as docs/reference/upkeep.md says, and logs.
	if largest = max(largest, bytesBelow(t, th.Dir())); largest > 4*most {
		t.Errorf("the directory had %d bytes", largest)
	}
	if files, err := os.ReadDir(th.Dir()); err != nil || len(files) > 20 {
		t.Errorf("%d files: %v, %v", len(files), files, err)
	}
	if head(t, th) != pushed {
		t.Errorf("%d is the newest id of %d", head(t, th), pushed)
	}
	oldest, n := oldestAndCount(t, th)
	if n > events || n < 10 || oldest+n-1 != pushed {
		t.Errorf("%d events from %d on, of %d", n, oldest, pushed)
	}
	if err := th.Close(); err != nil {
		t.Error(err)
	}
	if now := openDescriptors(); now > before {
		t.Errorf("%d descriptors are open, %d at the beginning of the year", now, before)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 64<<20 {
		t.Errorf("%d bytes in use at the end of the year", m.HeapAlloc)
	}
	for _, dir := range []string{"logs", "run"} {
		if n := bytesBelow(t, filepath.Join(th.Dir(), dir)); n > 1<<20 {
			t.Errorf("%s has %d bytes", dir, n)
		}
	}
	// The first tenth has a database that grows still: its free list is short, and its tree has fewer levels.
	tenth := all / 10
	if first, last := median(wrote[:tenth]), median(wrote[all-tenth:]); last > 2*first+64<<10 {
		t.Errorf("a push writes %d bytes at the end of the year, %d in the beginning", last, first)
	}
	t.Logf("%d pushes of %v and %v, %d and %d bytes written (first and last tenth), %d on a full disk, %d events left; events.db has %d bytes, the directory had %d at most, the heap %d",
		pushed, median(took[:tenth]), median(took[all-tenth:]), median(wrote[:tenth]), median(wrote[all-tenth:]), refused, n, info.Size(), largest, m.HeapAlloc)
}

func median[T cmp.Ordered](of []T) T {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

// writtenBytes returns how many bytes this process has written, 0 where it is unknown.
func writtenBytes() int64 {
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if n, ok := strings.CutPrefix(line, "wchar: "); ok {
			bytes, _ := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			return bytes
		}
	}
	return 0
}

// openDescriptors returns how many this process has, 0 where it is unknown.
func openDescriptors() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

func bytesBelow(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
