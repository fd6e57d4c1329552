package page

import (
	"context"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/jsonform"
	"thread/lock"
)

const (
	pastPoints = 31                     // of the last hour
	pastStep   = 2 * time.Minute        // between two of them
	pastTime   = 200 * time.Millisecond // for finding the points of an hour
	tailBytes  = 4 << 10                // of a log that its last line is looked for in
)

// past is the last hour of a thread: what was pushed, and how far its consumers were. It is
// kept in memory, and is empty where no reader has looked; the events pushed before are found
// by their times.
type past struct {
	until time.Time // of the last point, a multiple of pastStep
	heads [pastPoints]int64
	of    map[string]*progress // by consumer
	long  [len(trailSteps)]trail
}

// trailSteps are the times between two points of the trails: of a day, and of a week.
var trailSteps = [...]time.Duration{48 * time.Minute, 336 * time.Minute}

// trail is how many events of each consumer were unread at the points of a longer time, -1
// where that is not known. It is kept in memory.
type trail struct {
	until time.Time
	of    map[string]*[pastPoints]int64
}

// with returns the trail with the points up to now. Others may have the one before.
func (l trail) with(k *summary, step time.Duration, now time.Time) trail {
	until := now.Truncate(step)
	steps := pastPoints
	if !l.until.IsZero() {
		steps = min(pastPoints, max(0, int(until.Sub(l.until)/step)))
	}
	if steps == 0 {
		return l
	}
	n := trail{until, make(map[string]*[pastPoints]int64, len(k.of))}
	for i := range k.of {
		c := &k.of[i]
		var list [pastPoints]int64
		for j := range list {
			list[j] = -1
		}
		if old := l.of[c.Consumer]; old != nil {
			copy(list[:], old[steps:])
		}
		if c.PendingErr == nil {
			list[pastPoints-1] = c.Pending
		}
		n.of[c.Consumer] = &list
	}
	return n
}

// progress is how far a consumer was at the points, -1 where that is not known.
type progress struct{ acked, unread, dead [pastPoints]int64 }

// reaches reports whether the past has all points up to now.
func (p *past) reaches(now time.Time) bool { return !p.until.Before(now.Truncate(pastStep)) }

// with returns the past with the points up to now. Others may have the one before.
func (p past) with(t *engine.Thread, k *summary, now time.Time) past {
	until := now.Truncate(pastStep)
	steps := pastPoints
	if !p.until.IsZero() {
		steps = min(pastPoints, max(0, int(until.Sub(p.until)/pastStep)))
	}
	if steps == 0 {
		return p
	}
	n := past{until: until, of: make(map[string]*progress, len(k.of))}
	for i, step := range trailSteps {
		n.long[i] = p.long[i].with(k, step, now)
	}
	copy(n.heads[:], p.heads[steps:])
	n.fill(t, k, steps)
	for i := range k.of {
		c := &k.of[i]
		now := &progress{}
		for j := range now.acked {
			now.acked[j], now.unread[j], now.dead[j] = -1, -1, -1
		}
		if old := p.of[c.Consumer]; old != nil {
			copy(now.acked[:], old.acked[steps:])
			copy(now.unread[:], old.unread[steps:])
			copy(now.dead[:], old.dead[steps:])
		}
		last := pastPoints - 1
		now.acked[last], now.dead[last] = c.LastAcked, c.Dead
		if c.PendingErr == nil {
			now.unread[last] = c.Pending
		}
		n.of[c.Consumer] = now
	}
	return n
}

// fill finds the ids at the new points by their times.
func (p *past) fill(t *engine.Thread, k *summary, steps int) {
	ctx, cancel := context.WithTimeout(context.Background(), pastTime)
	defer cancel()
	first, last := pastPoints-steps, pastPoints-1
	quiet := parseTime(k.newest).Before(p.until.Add(-pastStep * (pastPoints - 1)))
	find := func(i, otherwise int) {
		p.heads[i] = k.info.Newest
		if quiet {
			return
		}
		id, err := t.Before(ctx, p.until.Add(-pastStep*time.Duration(last-i)))
		switch {
		case err == nil:
			p.heads[i] = id
		case otherwise >= 0:
			p.heads[i] = p.heads[otherwise]
		}
	}
	// Each look-up opens the thread: none is made between two points with the same id.
	var between func(low, high int)
	between = func(low, high int) {
		if high-low < 2 {
			return
		}
		middle := (low + high) / 2
		if p.heads[middle] = p.heads[low]; p.heads[low] != p.heads[high] {
			find(middle, low)
		}
		between(low, middle)
		between(middle, high)
	}
	if find(first, first-1); steps > 1 {
		find(last, first)
		between(first, last)
	}
}

// pushed are the events between two points each, and since the last.
func (p *past) pushed(head int64) []int64 {
	if p.until.IsZero() {
		return nil
	}
	list := differences(p.heads[:])
	return append(list[1:], max(0, head-p.heads[pastPoints-1]))
}

// rate is how many events were pushed in the last full step, for each minute.
func (p *past) rate(head int64, now time.Time) int64 {
	if p.until.IsZero() {
		return 0
	}
	passed := now.Sub(p.until) + pastStep
	return int64(float64(head-p.heads[pastPoints-2])*float64(time.Minute)/float64(passed) + .5)
}

// growth says how many more events of a consumer are unread with each minute, since the point
// before the last: "" where that is not known.
func (p *past) growth(c *jsonform.ConsumerState, now time.Time) string {
	one := p.of[c.Consumer]
	if one == nil || one.unread[pastPoints-2] < 0 || c.PendingErr != nil {
		return ""
	}
	minutes := (now.Sub(p.until) + pastStep).Minutes()
	each := int64(math.Round(float64(c.Pending-one.unread[pastPoints-2]) / minutes))
	switch {
	case each > 0:
		return ", " + count(each) + " more each minute"
	case each < 0:
		return ", " + count(-each) + " fewer each minute"
	}
	return ""
}

// handled are the events that a consumer has gone past between two points.
func (p *progress) handled(acked int64) []int64 {
	return append(differences(p.acked[:])[1:], since(p.acked[pastPoints-1], acked))
}

// died are the dead letters that were added between two points.
func (p *progress) died(dead int64) []int64 {
	return append(differences(p.dead[:])[1:], since(p.dead[pastPoints-1], dead))
}

func differences(at []int64) []int64 {
	list := make([]int64, 0, len(at))
	for i := 1; i < len(at); i++ {
		list = append(list, since(at[i-1], at[i]))
	}
	return list
}

func since(before, now int64) int64 {
	if before < 0 {
		return 0
	}
	return max(0, now-before)
}

// died are the dead letters that all consumers of a thread got between two points.
func (p *past) died(k *summary) []int64 {
	sum := make([]int64, pastPoints-1)
	for i := range k.of {
		if one := p.of[k.of[i].Consumer]; one != nil {
			for j, n := range one.died(k.of[i].Dead) {
				sum[j] += n
			}
		}
	}
	return sum
}

// watch keeps the past of threads while no reader looks.
func (s *summaries) watch(threads func() []Thread) {
	tick := time.NewTicker(pastStep)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
			list := threads()
			s.forget(list)
			s.ask(list)
		}
	}
}

// lastLine is the last line of a file that has something in it, "" without one.
func lastLine(path string) string {
	lines := strings.Split(strings.TrimSpace(tail(path, tailBytes)), "\n")
	return short(strings.TrimSpace(lines[len(lines)-1]))
}

// tail is the end of a file.
func tail(path string, most int64) string {
	f, err := os.OpenFile(path, os.O_RDONLY|lock.NoFollow|lock.NoWait, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-most), most))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}
