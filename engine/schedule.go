package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/robfig/cron/v3"

	"thread/event"
	"thread/internal/duration"
	"thread/internal/store"
)

// Errors about schedules.
var (
	ErrScheduleExists = errors.New("schedule exists")
	ErrNoSchedule     = errors.New("no such schedule")
	ErrNoDelayed      = errors.New("no such delayed event")
)

// Schedule pushes an event again and again.
//
// Times that pass while no process touches the thread are made up for by one
// event, however many they were; the next one comes at the first time of the
// schedule after that. No event is later than the first time of the schedule after
// now, by whatever clock it was planned: when the clock was ahead and is set back, the
// next time is computed again. One that is set back by up to five minutes repeats no
// time of day; it postpones the next event until it shows its time.
type Schedule struct {
	Name string // valid UTF-8, 1 to event.MaxNameBytes bytes
	// Spec is a cron expression of five fields: minute, hour, day of month, month, day
	// of week. Sunday is 0 or 7. The times are local to the process that computes the
	// next one. Spec may also be @hourly, @daily, @weekly, @monthly, @yearly, or @every
	// and a duration of whole seconds, at least 1 s, also in days (d) and weeks (w). It
	// is stored without 7, d and w, in other words for the same times.
	Spec  string
	Draft event.Draft
	Next  time.Time // set by Schedules and AddSchedule
}

// Delayed is an event that is to be pushed once.
type Delayed struct {
	ID    int64 // of the entry that waits, from 1; the event gets its own later
	At    time.Time
	Draft event.Draft
}

// PushAt stores an event that gets its id, and is seen by consumers, at the given
// time or at the first use of the thread after it. It is durable when PushAt
// returns nil. A time that has ended is now; e is the event then, and otherwise
// has the id 0.
//
// The errors are the errors of [Thread.Push]; [ErrInvalid] also for a time before 1970 or
// after the year 9999.
func (t *Thread) PushAt(ctx context.Context, d event.Draft, at time.Time) (e event.Event, err error) {
	e, _, err = t.DelayUntil(ctx, d, at)
	return e, err
}

// DelayUntil is [Thread.PushAt], and also returns the entry that waits; its ID is 0 when
// none does.
func (t *Thread) DelayUntil(ctx context.Context, d event.Draft, at time.Time) (e event.Event, waits Delayed, err error) {
	waits = Delayed{At: at, Draft: d}
	if err := d.Validate(); err != nil {
		return e, waits, err
	}
	if at.UnixMilli() < 0 || at.UTC().Year() > 9999 {
		return e, waits, invalidf("time %v is out of range", at)
	}
	err = t.Update(ctx, func(tx *Tx) error {
		e, waits.ID = event.Event{}, 0
		if !at.After(tx.now()) {
			e, err = tx.Push(d)
			return err
		}
		key, err := tx.schedule(at, &store.ScheduledEntry{Draft: d})
		waits.ID = delayedID(key)
		return err
	})
	return e, waits, err
}

// delayedID returns the id of an entry of the queue, 0 for none.
func delayedID(key []byte) int64 {
	if key == nil {
		return 0
	}
	return int64(store.SequenceOf(key))
}

// PushAfter is [Thread.PushAt] for a time from now, and returns that time. The event
// comes no later than that long from now by any clock: one that was ahead, and is set
// back meanwhile, makes the delay begin again.
func (t *Thread) PushAfter(ctx context.Context, d event.Draft, delay time.Duration) (e event.Event, at time.Time, err error) {
	e, waits, err := t.DelayFor(ctx, d, delay)
	return e, waits.At, err
}

// DelayFor is [Thread.PushAfter], and also returns the entry that waits; its ID is 0
// when none does.
func (t *Thread) DelayFor(ctx context.Context, d event.Draft, delay time.Duration) (e event.Event, waits Delayed, err error) {
	waits.Draft = d
	if err := d.Validate(); err != nil {
		return e, waits, err
	}
	err = t.Update(ctx, func(tx *Tx) error {
		now := tx.now()
		e, waits.ID = event.Event{}, 0
		at := now.Add(delay)
		if waits.At = at; delay <= 0 {
			e, err = tx.Push(d)
			return err
		}
		if now.UnixMilli() < 0 || at.UTC().Year() > 9999 {
			return invalidf("time %v is out of range", at)
		}
		if err := tx.notePlanned(); err != nil {
			return err
		}
		key, err := tx.schedule(at, &store.ScheduledEntry{Draft: d, Since: now})
		waits.ID = delayedID(key)
		return err
	})
	return e, waits, err
}

// notePlanned notes in the bucket schedules that something was planned now.
func (tx *Tx) notePlanned() error {
	planned, err := tx.s.Sequence(store.Schedules)
	if err != nil {
		return err
	}
	return tx.s.SetSequence(store.Schedules, max(planned, planTime(tx.now())))
}

// Cancel removes an event that waits for its time, by the id of [Delayed]. It returns
// [ErrNoDelayed] when none waits with that id, as when it was pushed before.
func (t *Thread) Cancel(ctx context.Context, id int64) error {
	return t.Update(ctx, func(tx *Tx) error {
		var found []byte
		err := tx.eachScheduled(func(key, value []byte) (bool, error) {
			if delayedID(key) != id {
				return true, nil
			}
			e, err := store.DecodeScheduled(key, value)
			if err == nil && !e.Repeats {
				found = bytes.Clone(key)
			}
			return false, err
		})
		if err != nil {
			return err
		}
		if found == nil {
			return fmt.Errorf("%w: %d", ErrNoDelayed, id)
		}
		return tx.s.Delete(store.Scheduled, found)
	})
}

// AddSchedule stores a schedule and returns the time of its first event. It returns
// [ErrScheduleExists] for a name that is taken, and [ErrInvalid] for a spec that is
// invalid or has no time at all, and for a draft out of bounds.
func (t *Thread) AddSchedule(ctx context.Context, s Schedule) (next time.Time, err error) {
	spec, stored, err := parseSpec(s.Spec)
	if err != nil {
		return next, err
	}
	given := s.Spec
	s.Spec = stored
	if err := s.Draft.Validate(); err != nil {
		return next, err
	}
	if s.Name == "" || len(s.Name) > event.MaxNameBytes || !utf8.ValidString(s.Name) {
		return next, invalidf("the name of a schedule is UTF-8 of 1 to %d bytes", event.MaxNameBytes)
	}
	err = t.Update(ctx, func(tx *Tx) error {
		v, err := tx.s.Get(store.Schedules, store.ScheduleKey(s.Name))
		if err != nil {
			return err
		}
		if v != nil {
			return fmt.Errorf("%w: %q", ErrScheduleExists, s.Name)
		}
		if next = spec.Next(t.now()); next.IsZero() {
			return invalidf("schedule %q names no time", given)
		}
		return tx.putSchedule(&store.Schedule{Name: s.Name, Spec: s.Spec, Draft: s.Draft}, next)
	})
	return next, err
}

// putSchedule stores s with its next time.
func (tx *Tx) putSchedule(s *store.Schedule, next time.Time) (err error) {
	if s.Next, err = tx.schedule(next, &store.ScheduledEntry{Schedule: s.Name, Repeats: true}); err != nil {
		return err
	}
	if err := tx.s.Put(store.Schedules, store.ScheduleKey(s.Name), s.Encode()); err != nil {
		return err
	}
	return tx.notePlanned()
}

// RemoveSchedule removes a schedule; the events that it pushed stay. It returns
// [ErrNoSchedule] when there is none of that name.
func (t *Thread) RemoveSchedule(ctx context.Context, name string) error {
	return t.Update(ctx, func(tx *Tx) error {
		key := store.ScheduleKey(name)
		v, err := tx.s.Get(store.Schedules, key)
		if v == nil {
			return errors.Join(err, fmt.Errorf("%w: %q", ErrNoSchedule, name))
		}
		s, err := store.DecodeSchedule(key, v)
		if err != nil {
			return err
		}
		if err := tx.s.Delete(store.Scheduled, s.Next); err != nil {
			return err
		}
		return tx.s.Delete(store.Schedules, key)
	})
}

// Schedules returns all schedules by name.
func (t *Thread) Schedules(ctx context.Context) (list []Schedule, err error) {
	err = t.read(ctx, func(tx *Tx) error {
		list = nil
		return tx.s.Ascend(store.Schedules, nil, func(k, v []byte) (bool, error) {
			s, err := store.DecodeSchedule(k, v)
			if err != nil {
				return true, err
			}
			list = append(list, Schedule{Name: s.Name, Spec: s.Spec, Draft: s.Draft, Next: store.DueOf(s.Next)})
			return true, nil
		})
	})
	return list, err
}

// Delayed returns the events that wait for their time, in that order, at most
// limit, or all for limit 0.
func (t *Thread) Delayed(ctx context.Context, limit int) (list []Delayed, err error) {
	err = t.read(ctx, func(tx *Tx) error {
		list = nil
		return tx.eachScheduled(func(key, value []byte) (bool, error) {
			e, err := store.DecodeScheduled(key, value)
			if err != nil {
				return false, err
			}
			if !e.Repeats {
				list = append(list, Delayed{ID: delayedID(key), At: store.DueOf(key), Draft: e.Draft})
			}
			return limit == 0 || len(list) < limit, nil
		})
	})
	return list, err
}

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// parseSpec returns the times of a spec, and the spec in the words that it is
// stored in, which earlier versions of this program read, too.
func parseSpec(spec string) (times cron.Schedule, stored string, err error) {
	if strings.Contains(spec, "TZ=") {
		return nil, "", invalidf("schedule %q: a time zone cannot be given", spec)
	}
	stored = spec
	if every, ok := strings.CutPrefix(spec, "@every "); ok {
		d, err := duration.Parse(every)
		if err != nil {
			return nil, "", invalidf("schedule %q: %q is not a duration", spec, every)
		}
		// The parser makes whole seconds, and at least one, of any duration.
		if d < time.Second || d%time.Second != 0 {
			return nil, "", invalidf("schedule %q: the duration is not a number of whole seconds from 1s", spec)
		}
		if strings.ContainsAny(every, "dw") {
			stored = "@every " + d.String()
		}
	} else if fields := strings.Fields(spec); len(fields) == 5 && strings.Contains(fields[4], "7") {
		fields[4] = sundays(fields[4])
		stored = strings.Join(fields, " ")
	}
	if times, err = cronParser.Parse(stored); err != nil {
		return nil, "", invalidf("schedule %q: %v", spec, err)
	}
	return times, stored, nil
}

// sundays returns a field of weekdays with 0 for every 7: both are Sunday, and the
// parser knows only the first. What is not a weekday is left for it to refuse.
func sundays(field string) string {
	parts := strings.Split(field, ",")
	for i, part := range parts {
		days, step, stepped := strings.Cut(part, "/")
		first, last, isRange := strings.Cut(days, "-")
		switch {
		case days == "7":
			parts[i] = "0" // the only day from 7 to 7, whatever the step
		case isRange && last == "7":
			parts[i] = daysTo7(first, step, stepped, part)
		}
	}
	return strings.Join(parts, ",")
}

// daysTo7 lists the days of a range that ends in 7.
func daysTo7(first, step string, stepped bool, part string) string {
	from, err := strconv.Atoi(first)
	if err != nil {
		from = slices.Index([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, strings.ToLower(first))
	}
	by := 1
	if stepped {
		by, _ = strconv.Atoi(step)
	}
	if from < 0 || from > 7 || by < 1 {
		return part
	}
	var days []string
	for day := from; day <= 7; day += by {
		days = append(days, strconv.Itoa(day%7))
	}
	return strings.Join(days, ",")
}

// planTime is now as the bucket schedules notes it: never 0, nor before 1970.
func planTime(now time.Time) uint64 { return uint64(max(1, now.UnixMilli())) }
