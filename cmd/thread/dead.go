package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"thread/engine"
	"thread/event"
)

// deadFlags select dead letters.
type deadFlags struct {
	threadFlags
	Consumer text `placeholder:"ID" help:"Only those of this consumer."`
	EventID  text `name:"event-id" placeholder:"N" help:"Only those of this event."`
	Filter   text `placeholder:"WHERE" help:"Only those whose event matches."`
	jsonFlag
}

type deadListCmd struct{ deadFlags }
type deadShowCmd struct{ deadFlags }
type deadDropCmd struct {
	deadFlags
	DryRun bool `name:"dry-run" help:"Show what would be dropped, and drop nothing."`
}
type deadRetryCmd struct {
	deadFlags
	DryRun bool `name:"dry-run" help:"Show what would be sent back, and send nothing."`
	Rate   text `placeholder:"N/s" help:"Send back at most so many per second; without it as fast as possible."`
}

func deadListVerb() *verb {
	return &verb{
		name:    "dead list",
		summary: "List the events that consumers could not process",
		details: `One line per dead letter: event, when it died, consumer, source, type, attempts
and the last error; on a terminal aligned and cut to its width, elsewhere whole
and with a tab in between.`,
		examples: `thread dead list --thread ./inbox
thread dead list --thread ./inbox --consumer worker --filter "type = 'order'" --json`,
		grammar: func() command { return new(deadListCmd) },
	}
}

func deadShowVerb() *verb {
	return &verb{
		name:     "dead show",
		summary:  "Show dead letters with their events and errors",
		examples: `thread dead show --thread ./inbox --consumer worker --event-id 42`,
		grammar:  func() command { return new(deadShowCmd) },
	}
}

func deadRetryVerb() *verb {
	return &verb{
		name:    "dead retry",
		summary: "Send dead letters back to their consumers",
		details: `They are given out again before newer events, with all their attempts anew, and
may die again. Each is sent back in a transaction of its own with --rate, else
some hundred in one; an interruption leaves the others as they were.`,
		examples: `thread dead retry --thread ./inbox --consumer worker
thread dead retry --thread ./inbox --filter "source = 'shop'" --rate 10/s
thread dead retry --thread ./inbox --dry-run`,
		grammar: func() command { return new(deadRetryCmd) },
	}
}

func deadDropVerb() *verb {
	return &verb{
		name:    "dead drop",
		summary: "Delete dead letters",
		details: "Their events stay in the thread, and stay processed.",
		examples: `thread dead drop --thread ./inbox --consumer worker --event-id 42
thread dead drop --thread ./inbox --consumer worker --dry-run`,
		grammar: func() command { return new(deadDropCmd) },
	}
}

// open opens the thread and returns what the flags select.
func (c *deadFlags) open(a *app) (t *engine.Thread, q engine.Letters, err error) {
	if t, err = a.open(c.Thread.value); err != nil {
		return nil, q, err
	}
	if c.Consumer.set {
		if err := checkConsumer(c.Consumer.value); err != nil {
			return nil, q, err
		}
	}
	if c.EventID.set {
		if q.ID, err = parseID("--event-id", c.EventID.value); err != nil {
			return nil, q, err
		}
		if q.ID == 0 {
			return nil, q, usage("--event-id 0 is no event", "give the id of an event, from 1")
		}
	}
	q.Consumer, q.Filter = c.Consumer.value, c.Filter.value
	return t, q, nil
}

func (c *deadListCmd) run(ctx context.Context, a *app) error {
	t, q, err := c.open(a)
	if err != nil {
		return err
	}
	defer t.Close()
	return a.listLetters(ctx, t, q, c.JSON, a.letterTable())
}

func (c *deadShowCmd) run(ctx context.Context, a *app) error {
	t, q, err := c.open(a)
	if err != nil {
		return err
	}
	defer t.Close()
	n := 0
	err = a.listLetters(ctx, t, q, c.JSON, func(l *engine.DeadLetter) error {
		if l != nil {
			n++
			a.out.buf = appendLetterText(a.out.buf, l)
		}
		return a.out.more()
	})
	if err == nil && n == 0 && !c.JSON && len(a.out.buf) == 0 {
		return logic("no dead letter is selected", "see thread dead list --thread "+shellWord(a.dir))
	}
	return err
}

// listLetters prints the selected letters, as JSON or with show, which is called
// with nil after the last of them.
func (a *app) listLetters(ctx context.Context, t *engine.Thread, q engine.Letters, json bool, show func(*engine.DeadLetter) error) error {
	if json {
		show = func(l *engine.DeadLetter) error {
			if l != nil {
				a.out.buf = appendLetterJSON(a.out.buf, l)
			}
			return a.out.more()
		}
	}
	for l, err := range t.DeadLetters(ctx, q) {
		if err == nil {
			err = show(&l)
		}
		if err != nil {
			return err
		}
	}
	return show(nil)
}

func (c *deadDropCmd) run(ctx context.Context, a *app) error {
	t, q, err := c.open(a)
	if err != nil {
		return err
	}
	defer t.Close()
	if c.DryRun {
		return a.listLetters(ctx, t, q, c.JSON, a.letterTable())
	}
	n, err := a.changeLetters(ctx, t, q, lettersAtOnce, 0, t.DropDead)
	return a.changed("Dropped", "dropped", n, c.JSON, err)
}

func (c *deadRetryCmd) run(ctx context.Context, a *app) error {
	t, q, err := c.open(a)
	if err != nil {
		return err
	}
	defer t.Close()
	atOnce, pause := lettersAtOnce, time.Duration(0)
	if c.Rate.set {
		rate, err := parseRate(c.Rate.value)
		if err != nil {
			return err
		}
		atOnce, pause = 1, time.Duration(float64(time.Second)/rate)
	}
	if c.DryRun {
		return a.listLetters(ctx, t, q, c.JSON, a.letterTable())
	}
	n, err := a.changeLetters(ctx, t, q, atOnce, pause, func(ctx context.Context, some []engine.DeadLetter) (int64, error) {
		n, err := t.RetryDead(ctx, some)
		if n > 0 {
			a.startHandlers(ctx, t, "dead retry", some[0].Consumer)
		}
		return n, err
	})
	return a.changed("Sent back", "retried", n, c.JSON, err)
}

// lettersAtOnce is how many letters are changed in one transaction.
const lettersAtOnce = 500

// changeLetters calls change for the selected letters, some at once, with a pause
// in between, until it is done or told to end. What was done by then is done.
func (a *app) changeLetters(ctx context.Context, t *engine.Thread, q engine.Letters, atOnce int, pause time.Duration,
	change func(context.Context, []engine.DeadLetter) (int64, error)) (total int64, err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var some []engine.DeadLetter
	flush := func() error {
		if len(some) == 0 {
			return nil
		}
		n, err := change(context.WithoutCancel(ctx), some)
		total += n
		some = some[:0]
		return err
	}
	next := time.Now()
	for l, err := range t.DeadLetters(ctx, q) {
		if ctx.Err() != nil {
			return total, errInterrupted
		}
		if err != nil {
			return total, err
		}
		l.Event.Content = "" // not needed to change the letter
		if some = append(some, l); len(some) < atOnce {
			continue
		}
		if pause > 0 {
			timer := time.NewTimer(time.Until(next))
			select {
			case <-ctx.Done():
				timer.Stop()
				return total, errInterrupted
			case <-timer.C:
			}
			next = time.Now().Add(pause)
		}
		if err := flush(); err != nil {
			return total, err
		}
	}
	return total, flush()
}

var errInterrupted = logic("interrupted", "run the command again for the rest")

// changed reports how many letters were changed, also when not all could be.
func (a *app) changed(word, key string, n int64, json bool, err error) error {
	if err != nil && n == 0 {
		return err
	}
	if err != nil {
		a.warn("%s only %d: %v", strings.ToLower(word), n, err)
	}
	line := fmt.Sprintf(`{%q:%d}`, key, n)
	if !json {
		letters := "letters"
		if n == 1 {
			letters = "letter"
		}
		line = fmt.Sprintf("%s %d dead %s", word, n, letters)
	}
	if outErr := a.out.text(line + "\n"); err == nil {
		err = outErr
	}
	return err
}

// parseRate reads "N/s", or N alone, as letters per second.
func parseRate(s string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(s, "/s"), 64)
	if err != nil || !(n >= 0.001 && n <= 1e6) {
		return 0, usage(fmt.Sprintf("--rate %q is not a rate", s), "give for example 10/s")
	}
	return n, nil
}

// letterTable returns what prints a letter as a row of a table.
func (a *app) letterTable() func(*engine.DeadLetter) error {
	rows := &table{out: &a.out, columns: tableColumns(a.out.w), number: true, least: []int{19, 24, 8, 6, 6, 8}}
	begun := false
	return func(l *engine.DeadLetter) error {
		if l == nil {
			return rows.flush()
		}
		if rows.columns > 0 && !begun {
			if err := rows.row("EVENT", "DIED", "CONSUMER", "SOURCE", "TYPE", "ATTEMPTS", "LAST ERROR"); err != nil {
				return err
			}
		}
		begun = true
		source, typ := "(no longer stored)", ""
		if l.Stored {
			source, typ = l.Event.Source, typeOf(&l.Event)
		}
		return rows.row(strconv.FormatInt(l.Event.ID, 10), event.FormatTime(l.DiedAt), printable(l.Consumer), printable(source), printable(typ),
			strconv.FormatInt(l.Attempts, 10), printable(l.LastError))
	}
}

func appendLetterText(b []byte, l *engine.DeadLetter) []byte {
	b = fmt.Appendf(b, "Event: %d\n  consumer: %s\n  died_at: %s\n  attempts: %d\n  exit_code: %s\n", l.Event.ID, printable(l.Consumer),
		event.FormatTime(l.DiedAt), l.Attempts, exitCodeText(l.ExitCode, "(none)"))
	b = fmt.Appendf(b, "  first_error: %s at %s\n  last_error: %s at %s\n", printable(l.FirstError), event.FormatTime(l.FirstAt),
		printable(l.LastError), event.FormatTime(l.LastAt))
	if !l.Stored {
		return append(b, "  content: (no longer stored)\n"...)
	}
	return fmt.Appendf(b, "  created_at: %s\n  source: %s\n  type: %s\n  content: %s\n", printable(l.Event.CreatedAt),
		printable(l.Event.Source), printable(typeOf(&l.Event)), printable(l.Event.Content))
}

func exitCodeText(code int64, none string) string {
	if code < 0 {
		return none
	}
	return strconv.FormatInt(code, 10)
}

// typeOf is type, or type/subtype.
func typeOf(e *event.Event) string {
	if e.Subtype == nil {
		return e.Type
	}
	return e.Type + "/" + *e.Subtype
}

// appendLetterJSON appends a letter as one line of JSON. event is null when it is
// not stored any more, exit_code when a signal or a crash ended the attempt.
func appendLetterJSON(b []byte, l *engine.DeadLetter) []byte {
	b = event.AppendString(append(b, `{"consumer_id":`...), l.Consumer)
	b = fmt.Appendf(b, `,"event_id":%d,"attempts":%d,"exit_code":%s`, l.Event.ID, l.Attempts, exitCodeText(l.ExitCode, "null"))
	b = event.AppendString(append(b, `,"first_error":`...), l.FirstError)
	b = event.AppendString(append(b, `,"last_error":`...), l.LastError)
	for _, at := range []struct {
		key string
		t   time.Time
	}{{"first_failed_at", l.FirstAt}, {"last_failed_at", l.LastAt}, {"died_at", l.DiedAt}} {
		b = fmt.Appendf(b, `,%q:%q`, at.key, event.FormatTime(at.t))
	}
	b = append(b, `,"event":`...)
	if l.Stored {
		b = l.Event.AppendJSON(b)
	} else {
		b = append(b, "null"...)
	}
	return append(b, "}\n"...)
}
