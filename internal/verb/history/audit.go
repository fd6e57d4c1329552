package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"thread/history"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type historyAuditCmd struct {
	Thread   cli.Text     `placeholder:"DIR" help:"The thread directory; by default THREAD_DIR, or the one that the working directory is in."`
	Question cli.Text     `arg:"" optional:"" name:"question" help:"One of those above; without it all but tools and hooks are asked in the form of triggers and failures."`
	Since    cli.Text     `placeholder:"TIME" help:"Only runs that were made since then, as for peek --since (default 24h)."`
	By       cli.Text     `placeholder:"WHAT" help:"With usage: sum by session, agent, model (default) or day."`
	Prices   cli.Text     `placeholder:"FILE" help:"With usage: prices per million tokens, as {\"MODEL\":{\"input\":3,\"output\":15,\"cached\":0.3}}."`
	Root     cli.Text     `placeholder:"DIR" help:"Ask all thread directories right below DIR."`
	Help     cli.HelpFlag `short:"h" help:"Show this help."`
	cli.JSONFlag
}

var historyAuditVerb = func() *cli.Verb {
	details := "The questions:\n"
	for _, q := range history.Questions {
		details += "\n" + q.Name + ": " + q.Help + "."
	}
	details += "\n" + usage + ": how many calls of models there were, and their tokens and cost."
	return &cli.Verb{
		Name: "history audit", Args: "[question]", Summary: "Answer who ran what, with which tools, and what went wrong",
		Details: details,
		Exits:   "0 answered",
		Examples: `thread history audit --thread ./inbox triggers --since 24h
thread history audit --root ~/threads failures --since 7d --json`,
		Errors: errorWords, Grammar: func() cli.Command { return new(historyAuditCmd) },
	}
}()

// NamesThread is for package cli.
func (c *historyAuditCmd) NamesThread() string {
	dir := c.Thread
	if c.Root.Set || cli.UseDefaultDir(&dir) != nil {
		return "" // Run returns the error
	}
	return dir.Value
}

func (c *historyAuditCmd) Run(ctx context.Context, a *cli.App) error {
	since, err := cli.ParseTime("--since", c.Since.Or("24h"), time.Now(), cli.Past)
	if err != nil {
		return err
	}
	questions := []string{"triggers", "failures"}
	if c.Question.Set {
		questions = []string{c.Question.Value}
	}
	if err := c.checkUsage(); err != nil {
		return err
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
		below, err := cli.ThreadsBelow(c.Root.Value)
		if err != nil {
			return err
		}
		dirs = nil
		for _, path := range below {
			dirs = append(dirs, cli.Text{Value: path, Set: true})
		}
	}
	var failed error
	for _, dir := range dirs {
		err := c.ask(ctx, a, dir, questions, since)
		if err == nil || !c.Root.Set || errors.Is(err, terminal.ErrReaderGone) || ctx.Err() != nil {
			if err != nil {
				return err
			}
			continue
		}
		// One history that cannot be read is not a reason to leave the others out.
		failed = cli.LogicError("some histories below "+c.Root.Value+" could not be asked", "see the warnings; thread check names damage")
		a.Warn("%s: %v", dir.Value, err)
	}
	return failed
}

// ask asks one thread.
func (c *historyAuditCmd) ask(ctx context.Context, a *cli.App, dir cli.Text, questions []string, since time.Time) error {
	return with(ctx, a, dir, func(h *history.History) error {
		if questions[0] == usage {
			return c.usage(ctx, a, h, since)
		}
		for _, q := range questions {
			answers := h.Audit(ctx, q, since)
			if q == "mirror" {
				answers = both(answers, mirrorPositions(ctx, a.Dir))
			}
			for rec, err := range answers {
				if err != nil {
					return err
				}
				if c.Root.Set || c.JSON {
					rec.Thread = a.Dir
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
}

func both(a, b iter.Seq2[history.Record, error]) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		for rec, err := range a {
			if !yield(rec, err) {
				return
			}
		}
		b(yield)
	}
}

// mirrorPositions gives how far the mirrors of the thread's workspaces are, which a program
// with SQLite reads. Without it, or without a mirror on this host, there are none.
func mirrorPositions(ctx context.Context, dir string) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		program := "thread-sqlite"
		if cli.IsURL(dir) {
			program = "thread-net"
		}
		out, err := cli.ProgramOutput(ctx, program, "history", "mirror", "--state", "--json", "--thread", dir)
		if err != nil {
			return
		}
		for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
			var p struct {
				To        string    `json:"to"`
				Workspace string    `json:"workspace_id"`
				Last      int64     `json:"last_event_id"`
				At        time.Time `json:"last_synced_at"`
				Status    string    `json:"status"`
				Error     *string   `json:"error_message"`
			}
			if err := dec.Decode(&p); err != nil {
				yield(history.Record{}, err)
				return
			}
			rec := history.Record{At: p.At, Event: "mirror", WorkspaceID: p.Workspace, HistoryEventID: p.Last, Status: p.Status, TriggerRef: p.To}
			if p.Error != nil {
				rec.ErrorMessage = *p.Error
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
}

func checkQuestions(questions []string) error {
	var names []string
	for _, q := range append(slices.Clip(history.Questions), history.Question{Name: usage}) {
		if q.Name == questions[0] {
			return nil
		}
		names = append(names, q.Name)
	}
	return cli.UsageError(fmt.Sprintf("the question %q is unknown", questions[0]), "ask one of "+strings.Join(names, ", "))
}

// usage is the question that sums calls of models.
const usage = "usage"

func (c *historyAuditCmd) checkUsage() error {
	switch {
	case (c.By.Set || c.Prices.Set) && c.Question.Value != usage:
		return cli.UsageError("--by and --prices are for usage", "ask thread history audit usage")
	case c.By.Set && !slices.Contains(history.UsageBy, c.By.Value):
		return cli.UsageError(fmt.Sprintf("--by %q is unknown", c.By.Value), "give one of "+strings.Join(history.UsageBy, ", "))
	}
	return nil
}

// usage prints the sums of one thread.
func (c *historyAuditCmd) usage(ctx context.Context, a *cli.App, h *history.History, since time.Time) error {
	prices := map[string]history.Price{}
	if c.Prices.Set {
		text, err := jsonFrom(a, "--prices", c.Prices)
		if err != nil {
			return err
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&prices); err != nil {
			return cli.UsageError("--prices has another form: "+err.Error(), "see thread history audit --help")
		}
	}
	sums, err := h.Usage(ctx, c.By.Or("model"), since, prices)
	if err != nil {
		return err
	}
	for _, u := range sums {
		if c.JSON {
			err = a.Out.JSON(struct {
				Thread string `json:"thread"`
				history.Usage
			}{a.Dir, u})
		} else {
			err = a.Out.Text(c.usageLine(a, &u) + "\n")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *historyAuditCmd) usageLine(a *cli.App, u *history.Usage) string {
	dir, cost, unpriced := "", "", ""
	if c.Root.Set {
		dir = a.Dir
	}
	if c.Prices.Set {
		cost = fmt.Sprintf("cost %.4f", u.Cost)
		if u.Unpriced > 0 {
			unpriced = fmt.Sprintf("%d calls without a price", u.Unpriced)
		}
	}
	return line(dir, cmp.Or(u.Key, "-"), fmt.Sprintf("calls %d", u.Calls), fmt.Sprintf("in %d", u.Input), fmt.Sprintf("out %d", u.Output),
		fmt.Sprintf("cached %d", u.Cached), cost, unpriced)
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
	return line(r.Thread, r.Event, at(r.At), r.RunID, r.Status, labelled("by", r.TriggerType), r.TriggerRef, labelled("for", r.SubjectRef), labelled("agent", agent),
		labelled("session", r.SessionID), labelled("parent", r.ParentRunID), labelled("tool", tool), labelled("hook", r.HookName),
		labelled("patch", string(r.Patch)), labelled("error", firstLine(r.ErrorMessage)), took, id)
}
