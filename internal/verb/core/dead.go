package core

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
	"thread/internal/cli"
	"thread/internal/jsonform"
	"thread/internal/terminal"
)

// deadFlags select dead letters.
type deadFlags struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" placeholder:"CONSUMER" help:"Only this consumer's."`
	EventID  cli.Text `name:"event-id" placeholder:"EVENT" help:"Only this event's."`
	Filter   cli.Text `placeholder:"WHERE" help:"Only those whose event matches."`
	cli.JSONFlag
}

type deadListCmd struct {
	deadFlags
	cli.RootFlag
}
type deadShowCmd struct{ deadFlags }
type deadDropCmd struct {
	deadFlags
	All    bool `help:"Drop all of them; without it one of --consumer, --event-id and --filter is needed."`
	DryRun bool `name:"dry-run" help:"Show what would be dropped, and drop nothing."`
}
type deadRetryCmd struct {
	deadFlags
	DryRun bool     `name:"dry-run" help:"Show what would be sent back, and send nothing."`
	Rate   cli.Text `placeholder:"N/s" help:"Send back at most N per second; without it as fast as possible."`
}

var deadListVerb = &cli.Verb{
	Name:    "dead list",
	Summary: "List the events that consumers could not process",
	Details: `One line per dead letter: event, when it died, consumer, source, type, attempts
and the last error; on a terminal aligned and cut to its width, elsewhere whole
and with a tab in between.`,
	Exits: "0 listed, perhaps none",
	Examples: `thread dead list --thread ./inbox
thread dead list --root ~/threads
thread dead list --thread ./inbox --consumer worker --filter "type = 'order'" --json`,
	Grammar: func() cli.Command { return new(deadListCmd) },
}

var deadShowVerb = &cli.Verb{
	Name:     "dead show",
	Summary:  "Show dead letters with their events and errors",
	Exits:    "0 shown\n1 no dead letter is selected",
	Examples: `thread dead show --thread ./inbox --consumer worker --event-id 42`,
	Grammar:  func() cli.Command { return new(deadShowCmd) },
}

var deadRetryVerb = &cli.Verb{
	Name:    "dead retry",
	Summary: "Send dead letters back to their consumers",
	Details: `They are delivered again before newer events, with a fresh count of attempts, and
may become dead letters again. With --rate each is sent back in a separate transaction,
otherwise some hundred in one. An interruption leaves the others as they were.`,
	Exits: "0 sent back\n1 no dead letter is selected; interrupted, the rest is as it was",
	Examples: `thread dead retry --thread ./inbox --consumer worker
thread dead retry --thread ./inbox --filter "source = 'shop'" --rate 10/s
thread dead retry --thread ./inbox --dry-run`,
	Grammar: func() cli.Command { return new(deadRetryCmd) },
}

var deadDropVerb = &cli.Verb{
	Name:    "dead drop",
	Summary: "Delete dead letters",
	Details: `Their events stay in the thread, and stay processed. With --all on a terminal it
asks first.`,
	Exits: "0 deleted\n1 no dead letter is selected; not confirmed; interrupted, the rest is as it was\n2 neither a selection nor --all",
	Examples: `thread dead drop --thread ./inbox --consumer worker --event-id 42
thread dead drop --thread ./inbox --consumer worker --dry-run`,
	Grammar: func() cli.Command { return new(deadDropCmd) },
}

// open opens the thread and returns what the flags select.
func (c *deadFlags) open(a *cli.App) (t *engine.Thread, q engine.DeadLetterQuery, err error) {
	if t, err = a.Open(c.Thread.Value); err != nil {
		return nil, q, err
	}
	if c.Consumer.Set {
		if err := cli.CheckConsumer(c.Consumer.Value); err != nil {
			return nil, q, err
		}
	}
	if c.EventID.Set {
		if q.ID, err = cli.ParseID("--event-id", c.EventID.Value); err != nil {
			return nil, q, err
		}
		if q.ID == 0 {
			return nil, q, cli.UsageError("--event-id 0 is not an event", "give the id of an event, from 1")
		}
	}
	q.Consumer, q.Filter = c.Consumer.Value, c.Filter.Value
	return t, q, nil
}

func (c *deadListCmd) Run(ctx context.Context, a *cli.App) error {
	return c.Each(a, &c.Thread, c.JSON, func(dir string) error {
		c.Thread.Value = dir
		return c.one(ctx, a)
	})
}

// one lists the letters of one thread.
func (c *deadListCmd) one(ctx context.Context, a *cli.App) error {
	t, q, err := c.open(a)
	if err != nil {
		return err
	}
	defer t.Close()
	n, err := listLetters(ctx, a, t, q, c.JSON, letterTable(a))
	return orUnsubscribed(ctx, a, t, q, n, err)
}

// orUnsubscribed returns err, or the error about a consumer without letters that is not
// subscribed.
func orUnsubscribed(ctx context.Context, a *cli.App, t *engine.Thread, q engine.DeadLetterQuery, letters int64, err error) error {
	if err != nil || letters > 0 || q.Consumer == "" {
		return err
	}
	return a.CheckSubscribed(ctx, t, q.Consumer)
}

func (c *deadShowCmd) Run(ctx context.Context, a *cli.App) error {
	t, q, err := c.open(a)
	if err != nil {
		return err
	}
	defer t.Close()
	n, err := listLetters(ctx, a, t, q, c.JSON, func(l *engine.DeadLetter) error {
		if l != nil {
			a.Out.Buf = appendLetterText(a.Out.Buf, l)
		}
		return a.Out.More()
	})
	if err = orUnsubscribed(ctx, a, t, q, n, err); err == nil && n == 0 && !c.JSON {
		return cli.LogicError("no dead letter is selected", "see thread dead list --thread "+cli.ShellWord(a.Dir))
	}
	return err
}

// listLetters prints the selected letters, as JSON or with show, which is called
// with nil after the last of them. It returns how many there are.
func listLetters(ctx context.Context, a *cli.App, t *engine.Thread, q engine.DeadLetterQuery, json bool, show func(*engine.DeadLetter) error) (n int64, err error) {
	if json {
		show = func(l *engine.DeadLetter) error {
			if l != nil {
				return printLetterJSON(a, l)
			}
			return nil
		}
	}
	for l, err := range t.DeadLetters(ctx, q) {
		if err != nil {
			return n, err
		}
		if err := show(&l); err != nil {
			return n, err
		}
		n++
	}
	return n, show(nil)
}

func (c *deadDropCmd) Run(ctx context.Context, a *cli.App) error {
	t, q, err := c.open(a)
	if err != nil {
		return err
	}
	defer t.Close()
	if c.DryRun {
		n, err := listLetters(ctx, a, t, q, c.JSON, letterTable(a))
		return orUnsubscribed(ctx, a, t, q, n, err)
	}
	selected := q.Consumer != "" || q.ID != 0 || q.Filter != ""
	switch {
	case selected && c.All:
		return cli.UsageError("--all does not go with --consumer, --event-id or --filter", "leave it out to drop only those")
	case !selected && !c.All:
		return cli.UsageError("dead drop without a selection would drop every dead letter", "add --consumer, --event-id or --filter, or --all")
	case c.All:
		if err := a.Confirm("Drop all dead letters of " + a.Dir + "?"); err != nil {
			return err
		}
	}
	n, err := changeLetters(ctx, t, q, lettersAtOnce, 0, t.DropDead)
	err = orUnsubscribed(ctx, a, t, q, n, err)
	return changed(a, "Dropped", "dropped", n, c.JSON, err)
}

func (c *deadRetryCmd) Run(ctx context.Context, a *cli.App) error {
	t, q, err := c.open(a)
	if err != nil {
		return err
	}
	defer t.Close()
	atOnce, pause := lettersAtOnce, time.Duration(0)
	if c.Rate.Set {
		rate, err := parseRate(c.Rate.Value)
		if err != nil {
			return err
		}
		atOnce, pause = 1, time.Duration(float64(time.Second)/rate)
	}
	if c.DryRun {
		n, err := listLetters(ctx, a, t, q, c.JSON, letterTable(a))
		return orUnsubscribed(ctx, a, t, q, n, err)
	}
	n, err := changeLetters(ctx, t, q, atOnce, pause, func(ctx context.Context, some []engine.DeadLetter) (int64, error) {
		n, err := t.RetryDead(ctx, some)
		if n > 0 {
			startHandlers(ctx, a, t, "dead retry", some[0].Consumer)
		}
		return n, err
	})
	err = orUnsubscribed(ctx, a, t, q, n, err)
	return changed(a, "Sent back", "retried", n, c.JSON, err)
}

// lettersAtOnce is how many letters are changed in one transaction.
const lettersAtOnce = 500

// changeLetters calls change for the selected letters, some at once, with a pause
// in between, until it is done or told to end. What was done by then is done.
func changeLetters(ctx context.Context, t *engine.Thread, q engine.DeadLetterQuery, atOnce int, pause time.Duration,
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

var errInterrupted = cli.LogicError("interrupted", "run the command again for the rest")

// changed reports how many letters were changed, also when not all could be.
func changed(a *cli.App, word, key string, n int64, json bool, err error) error {
	if err != nil && n == 0 {
		return err
	}
	if err != nil {
		a.Warn("%s only %d: %v", strings.ToLower(word), n, err)
	}
	line := fmt.Sprintf(`{%q:%d}`, key, n)
	if !json {
		letters := "letters"
		if n == 1 {
			letters = "letter"
		}
		line = fmt.Sprintf("%s %d dead %s", word, n, letters)
	}
	if outErr := a.Out.Text(line + "\n"); err == nil {
		err = outErr
	}
	return err
}

// parseRate reads "N/s", or N alone, as letters per second.
func parseRate(s string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(s, "/s"), 64)
	if err != nil || !(n >= 0.001 && n <= 1e6) {
		return 0, cli.UsageError(fmt.Sprintf("--rate %q is not a rate", s), "give for example 10/s")
	}
	return n, nil
}

// letterTable returns what prints a letter as a row of a table.
func letterTable(a *cli.App) func(*engine.DeadLetter) error {
	rows := &terminal.Table{Out: &a.Out, Columns: terminal.TableColumns(a.Out.W), Number: true, Least: []int{19, 24, 8, 6, 6, 8}}
	rows.Header("EVENT", "DIED", "CONSUMER", "SOURCE", "TYPE", "ATTEMPTS", "LAST ERROR")
	return func(l *engine.DeadLetter) error {
		if l == nil {
			return rows.Flush()
		}
		source, typ := "(no longer stored)", ""
		if l.Stored {
			source, typ = l.Event.Source, typeOf(&l.Event)
		}
		return rows.Row(strconv.FormatInt(l.Event.ID, 10), event.FormatTime(l.DiedAt), terminal.Printable(l.Consumer), terminal.Printable(source), terminal.Printable(typ),
			strconv.FormatInt(l.Attempts, 10), terminal.Printable(l.LastError))
	}
}

func appendLetterText(b []byte, l *engine.DeadLetter) []byte {
	b = fmt.Appendf(b, "Event: %d\n  consumer: %s\n  died_at: %s\n  attempts: %d\n  exit_code: %s\n", l.Event.ID, terminal.Printable(l.Consumer),
		event.FormatTime(l.DiedAt), l.Attempts, exitCodeText(l.ExitCode))
	b = fmt.Appendf(b, "  first_error: %s at %s\n  last_error: %s at %s\n", terminal.Printable(l.FirstError), event.FormatTime(l.FirstAt),
		terminal.Printable(l.LastError), event.FormatTime(l.LastAt))
	if !l.Stored {
		return append(b, "  content: (no longer stored)\n"...)
	}
	return fmt.Appendf(b, "  created_at: %s\n  source: %s\n  type: %s\n  content: %s\n", terminal.Printable(l.Event.CreatedAt),
		terminal.Printable(l.Event.Source), terminal.Printable(typeOf(&l.Event)), terminal.Printable(l.Event.Content))
}

func exitCodeText(code int64) string {
	if code < 0 {
		return "(none)"
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

// printLetterJSON adds a letter as one line of JSON. event is null when it is not
// stored any more.
func printLetterJSON(a *cli.App, l *engine.DeadLetter) error {
	if !l.Stored {
		return a.Out.JSONWith(jsonform.NewLetter(l), "event", nil)
	}
	return a.Out.JSONWith(jsonform.NewLetter(l), "event", &l.Event)
}
