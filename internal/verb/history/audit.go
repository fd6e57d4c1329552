package history

import (
	"context"
	"fmt"
	"strings"
	"time"

	"thread/history"
	"thread/internal/cli"
)

type historyAuditCmd struct {
	Thread   cli.Text     `placeholder:"DIR" help:"The thread directory; by default THREAD_DIR, or the one that the working directory is in."`
	Question cli.Text     `arg:"" optional:"" name:"question" help:"One of those above; without it all but tools and hooks are asked in the form of triggers and failures."`
	Since    cli.Text     `placeholder:"TIME" help:"Only runs that were made since then, as for peek --since (default 24h)."`
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
		Exits:   "0 answered",
		Examples: `thread history audit --thread ./inbox triggers --since 24h
thread history audit --root ~/threads failures --since 7d --json`,
		Errors: errorWords, Grammar: func() cli.Command { return new(historyAuditCmd) },
	}
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
				for rec, err := range h.Audit(ctx, q, since) {
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
	for _, path := range cli.ThreadsIn(dir) {
		dirs = append(dirs, cli.Text{Value: path, Set: true})
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
