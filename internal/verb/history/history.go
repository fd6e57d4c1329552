package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/cli"
)

func lines(text string) iter.Seq[string] {
	return strings.SplitSeq(strings.TrimRight(text, "\n"), "\n")
}

// outputOf returns what the command of a step printed.
func outputOf(s *history.StepRow) string {
	var out struct {
		Output string `json:"output"`
	}
	_ = json.Unmarshal(s.Output, &out) // one that is not there has no output
	return out.Output
}

type historyTailCmd struct {
	cli.ThreadFlags
	Follow  bool     `short:"f" help:"Go on with what is recorded later, until interrupted."`
	Session cli.Text `placeholder:"ID" help:"Only what belongs to this session."`
	Filter  cli.Text `placeholder:"SQL" help:"Only history events that match: type is the entity, subtype the status, the role or deleted."`
	After   cli.Text `placeholder:"ID" help:"Only those after this one, to go on where an earlier tail ended."`
	cli.JSONFlag
}

func historyTailVerb() *cli.Verb {
	return &cli.Verb{
		Name: "history tail", Summary: "Print what was recorded, change by change",
		Details: `Every change of a row is a history event. With --follow none is left out, and none
comes twice, between those that are there and those to come.`,
		Examples: `thread history tail --thread ./inbox -f --session S
thread history tail --thread ./inbox --filter "type = 'run' AND subtype = 'failed'" --json`,
		Grammar: func() cli.Command { return new(historyTailCmd) },
	}
}

func (c *historyTailCmd) Run(ctx context.Context, a *cli.App) error {
	after := int64(0)
	if c.After.Set {
		var err error
		if after, err = cli.ParseID("--after", c.After.Value); err != nil {
			return err
		}
	}
	where := c.Filter.Value
	if c.Session.Set {
		of := "source = 'session:" + strings.ReplaceAll(c.Session.Value, "'", "''") + "'"
		if where != "" {
			of += " AND (" + where + ")"
		}
		where = of
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		ctx, stop := cli.Interruptible(ctx)
		defer stop()
		seq := h.Changes(ctx, after, where)
		if c.Follow {
			seq = h.Follow(ctx, after, where)
		}
		for change, err := range seq {
			if err != nil && ctx.Err() != nil && c.Follow {
				return nil
			}
			if err != nil {
				return err
			}
			if c.JSON {
				a.Out.Buf = append(change.AppendJSON(a.Out.Buf), '\n')
			} else {
				var row struct{ Status, Role string }
				_ = json.Unmarshal(change.Row, &row) // a row without them has none
				a.Out.Buf = append(a.Out.Buf, line(fmt.Sprint(change.ID), change.At, labelled("session", change.Session), change.Op, string(change.Entity), change.EntityID, row.Status, row.Role)+"\n"...)
			}
			end := a.Out.More
			if c.Follow {
				end = a.Out.Flush
			}
			if err := end(); err != nil {
				return err
			}
		}
		return nil
	})
}

type historyAuditCmd struct {
	Thread   cli.Text     `placeholder:"DIR" help:"The thread directory; by default THREAD_DIR, or the one that the working directory is in."`
	Question cli.Text     `arg:"" optional:"" name:"question" help:"One of those above; without it all but tools and hooks are asked in the form of triggers and failures."`
	Since    cli.Text     `placeholder:"DURATION" help:"Only runs that were made since then (default 24h)."`
	Root     cli.Text     `placeholder:"DIR" help:"Ask all thread directories right below DIR."`
	Help     cli.HelpFlag `short:"h" help:"Show this help."`
	cli.JSONFlag
}

func historyAuditVerb() *cli.Verb {
	details := "The questions:\n"
	for _, q := range history.Questions {
		details += "\n" + q.Name + ": " + q.Help + "."
	}
	return &cli.Verb{
		Name: "history audit", Args: "[question]", Summary: "Answer who ran what, with which tools, and what went wrong",
		Details: details,
		Examples: `thread history audit --thread ./inbox triggers --since 24h
thread history audit --root ~/threads failures --since 7d --json`,
		Grammar: func() cli.Command { return new(historyAuditCmd) },
	}
}

func (c *historyAuditCmd) Run(ctx context.Context, a *cli.App) error {
	d, err := cli.ParseDuration("--since", c.Since.Or("24h"))
	if err != nil {
		return err
	}
	questions := []string{"triggers", "failures"}
	if c.Question.Set {
		questions = []string{c.Question.Value}
	}
	if err := checkQuestions(questions); err != nil {
		return err
	}
	dirs := []cli.Text{c.Thread}
	switch {
	case c.Root.Set && c.Thread.Set:
		return cli.UsageError("--thread and --root exclude each other", "give one of them")
	case !c.Root.Set:
		if err := cli.UseDefaultDir(&dirs[0]); err != nil {
			return err
		}
	default:
		if dirs, err = threadsBelow(c.Root.Value); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		err := with(ctx, a, dir, func(h *history.History) error {
			for _, q := range questions {
				for rec, err := range h.Audit(ctx, q, time.Now().Add(-d)) {
					if err != nil {
						return err
					}
					if c.JSON {
						a.Out.Buf = append(rec.AppendJSON(a.Out.Buf), '\n')
					} else {
						a.Out.Buf = append(a.Out.Buf, recordLine(&rec)+"\n"...)
					}
					if err := a.Out.More(); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func checkQuestions(questions []string) error {
	var names []string
	for _, q := range history.Questions {
		if q.Name == questions[0] {
			return nil
		}
		names = append(names, q.Name)
	}
	return cli.UsageError(fmt.Sprintf("the question %q is unknown", questions[0]), "ask one of "+strings.Join(names, ", "))
}

// threadsBelow returns the thread directories right below dir.
func threadsBelow(dir string) (dirs []cli.Text, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); cli.IsThread(path) {
			dirs = append(dirs, cli.Text{Value: path, Set: true})
		}
	}
	if dirs == nil {
		return nil, cli.LogicError("there is no thread directory right below "+dir, "name the directory that holds them")
	}
	return dirs, nil
}

func recordLine(r *history.Record) string {
	agent := r.EffectiveAgentName
	if r.AgentName != agent {
		agent = r.AgentName + " -> " + agent
	}
	id, tool := "", r.ToolName
	if r.HistoryEventID > 0 {
		id = fmt.Sprint("at history event ", r.HistoryEventID)
	}
	if tool != "" {
		tool = r.SourceType + "/" + tool
	}
	took := ""
	if r.DurationMS > 0 {
		took = (time.Duration(r.DurationMS) * time.Millisecond).String()
	}
	return line(r.Event, at(r.At), r.RunID, r.Status, labelled("by", r.TriggerType), r.TriggerRef, labelled("for", r.SubjectRef), labelled("agent", agent),
		labelled("session", r.SessionID), labelled("parent", r.ParentRunID), labelled("tool", tool), labelled("hook", r.HookName),
		labelled("patch", string(r.Patch)), labelled("error", firstLine(r.ErrorMessage)), took, id)
}

type historyPruneCmd struct {
	cli.ThreadFlags
	OlderThan cli.Text `name:"older-than" placeholder:"DURATION" help:"Drop history events that are older."`
	KeepLast  cli.Text `name:"keep-last" placeholder:"N" help:"Keep the newest so many."`
	Force     bool     `help:"Also those that a subscribed consumer has not acked."`
	DryRun    bool     `name:"dry-run" help:"Only say what would be dropped."`
	cli.JSONFlag
}

func historyPruneVerb() *cli.Verb {
	return &cli.Verb{
		Name: "history prune", Summary: "Drop old history events and keep every row",
		Details: `Rows stay as they are: one whose newest history event would go is recorded again as
replace. What goes are older versions and deleted rows. To get rid of rows, delete
their sessions first.`,
		Examples: `thread history prune --thread ./inbox --older-than 30d`,
		Grammar:  func() cli.Command { return new(historyPruneCmd) },
	}
}

func (c *historyPruneCmd) Run(ctx context.Context, a *cli.App) error {
	r := engine.Retention{Force: c.Force, DryRun: c.DryRun}
	if !c.OlderThan.Set && !c.KeepLast.Set {
		return cli.UsageError("give --older-than or --keep-last", "add for example --older-than 30d")
	}
	if c.OlderThan.Set {
		d, err := cli.ParseDuration("--older-than", c.OlderThan.Value)
		if err != nil {
			return err
		}
		r.OlderThan = time.Now().Add(-d)
	}
	if c.KeepLast.Set {
		n, ok := cli.ParseNumber(c.KeepLast.Value)
		if !ok {
			return cli.UsageError(fmt.Sprintf("--keep-last %q is not a number", c.KeepLast.Value), "give how many history events to keep")
		}
		r.KeepLast = &n
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		done, replaced, err := h.Prune(ctx, r)
		var held *engine.HeldBackError
		if errors.As(err, &held) {
			return cli.LogicError(err.Error()+" of the history", "let that consumer go on, or add --force")
		}
		if err != nil {
			return err
		}
		if c.JSON {
			return a.Out.Text(fmt.Sprintf(`{"dropped":%d,"replaced":%d,"dry_run":%v}`+"\n", done.Dropped, replaced, c.DryRun))
		}
		verb := "Dropped"
		if c.DryRun {
			verb = "Would drop"
		}
		return a.Out.Text(fmt.Sprintf("%s %d history events, recorded %d rows again\n", verb, done.Dropped, replaced))
	})
}

type historyLimitCmd struct {
	cli.ThreadFlags
	Subject   cli.Text `placeholder:"REF" help:"Whose runs; \"\" for every subject that has no limit of its own."`
	Workspace cli.Text `placeholder:"ID" help:"The runs of which workspace; \"\" for that of the directory."`
	Active    cli.Text `placeholder:"N" help:"At most so many active at once; 0 for any number."`
	Rate      cli.Text `placeholder:"N/DURATION" help:"At most so many started or queued in that time, as 30/1m."`
	Remove    bool     `help:"Remove the limit."`
	cli.JSONFlag
}

func historyLimitVerb() *cli.Verb {
	return &cli.Verb{
		Name: "history limit", Summary: "Limit the runs of a subject or workspace, or list the limits",
		Details: `A run that would be over a limit is refused with exit code 1, and one that is queued
waits. Without --subject and --workspace the limits are listed.`,
		Examples: `thread history limit --thread ./inbox --subject u1 --active 3 --rate 30/1m
thread history limit --thread ./inbox --subject u1 --remove`,
		Grammar: func() cli.Command { return new(historyLimitCmd) },
	}
}

func (c *historyLimitCmd) Run(ctx context.Context, a *cli.App) error {
	if c.Subject.Set && c.Workspace.Set {
		return cli.UsageError("--subject and --workspace exclude each other", "set one limit after the other")
	}
	if !c.Subject.Set && !c.Workspace.Set {
		return with(ctx, a, c.Thread, func(h *history.History) error {
			for l, err := range h.Limits(ctx) {
				if err != nil {
					return err
				}
				if err := put(a, c.JSON, &l, limitLine(&l)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	l := history.LimitRow{Scope: "subject", Ref: c.Subject.Value}
	if c.Workspace.Set {
		l.Scope, l.Ref = "workspace", c.Workspace.Value
	}
	l.ID = history.LimitID(l.Scope, l.Ref)
	if c.Remove {
		return with(ctx, a, c.Thread, func(h *history.History) error {
			if err := h.Update(ctx, func(tx *history.Tx) error { return tx.Delete(history.Limit, l.ID) }); err != nil {
				return err
			}
			if c.JSON {
				return put(a, true, &l, "")
			}
			return a.Out.Text("Removed the limit of " + cli.Printable(strings.TrimSuffix(l.ID, ":")) + "\n")
		})
	}
	if !c.Active.Set && !c.Rate.Set {
		return cli.UsageError("no limit is given", "add --active N or --rate N/DURATION")
	}
	if c.Active.Set {
		n, ok := cli.ParseNumber(c.Active.Value)
		if !ok {
			return cli.UsageError(fmt.Sprintf("--active %q is not a number", c.Active.Value), "give how many, 0 for any number")
		}
		l.Active = n
	}
	if c.Rate.Set {
		count, per, _ := strings.Cut(c.Rate.Value, "/")
		n, ok := cli.ParseNumber(count)
		d, err := cli.ParseDuration("--rate", per)
		if !ok || n < 1 || err != nil || d < time.Millisecond {
			return cli.UsageError(fmt.Sprintf("--rate %q is not a rate", c.Rate.Value), "give for example 30/1m")
		}
		l.Rate, l.PerMS = n, d.Milliseconds()
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		if err := h.Put(ctx, &l); err != nil {
			return err
		}
		return put(a, c.JSON, &l, limitLine(&l))
	})
}

func limitLine(l *history.LimitRow) string {
	who := l.Scope + " " + l.Ref
	if l.Ref == "" {
		who = "every " + l.Scope
		if l.Scope == "workspace" {
			who = "this workspace"
		}
	}
	active, rate := "", ""
	if l.Active > 0 {
		active = fmt.Sprintf("%d active", l.Active)
	}
	if l.Rate > 0 {
		rate = fmt.Sprintf("%d in %s", l.Rate, time.Duration(l.PerMS)*time.Millisecond)
	}
	return line(who, active, rate)
}

type historyRebuildCmd struct {
	cli.ThreadFlags
	cli.JSONFlag
}

func historyRebuildVerb() *cli.Verb {
	return &cli.Verb{
		Name: "history rebuild", Summary: "Make the tables of the history anew out of its log",
		Details:  `For a history that was repaired from its lines. The rows and their order come out the same.`,
		Examples: `thread history rebuild --thread ./inbox`,
		Grammar:  func() cli.Command { return new(historyRebuildCmd) },
	}
}

func (c *historyRebuildCmd) Run(ctx context.Context, a *cli.App) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		n, err := h.Rebuild(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return a.Out.Text(string(event.AppendString([]byte(`{"thread":`), a.Dir)) + fmt.Sprintf(`,"history_events":%d}`+"\n", n))
		}
		return a.Out.Text(fmt.Sprintf("Rebuilt from %d history events\n", n))
	})
}
