package history

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"thread/history"
	"thread/internal/cli"
	"thread/internal/terminal"
)

// show prints a run and what belongs to it, or one step.
func show(ctx context.Context, a *cli.App, h *history.History, id string, step int64, asJSON bool) error {
	var run history.RunRow
	if err := h.Get(ctx, &run, id); err != nil {
		return err
	}
	if step > 0 {
		for s, err := range h.Steps(ctx, id) {
			if err != nil {
				return err
			}
			if s.Seq == step {
				return put(a, asJSON, &s, stepLine(&s)+"\n"+in("input", string(s.Input))+in("output", string(s.Output)))
			}
		}
		return cli.LogicError(fmt.Sprintf("run %q has no step %d", id, step), "see thread run show "+cli.ShellWord(id))
	}
	p := part{a, asJSON}
	if err := p.row(&run, runLine(&run)); err != nil {
		return err
	}
	if !asJSON {
		trace, request := history.TraceOf(&run)
		text := line(labelled("  trigger", run.TriggerType+" "+run.TriggerRef), labelled("parent", run.ParentRunID), labelled("trace", trace), labelled("request", request))
		if err := a.Out.Text(text + "\n"); err != nil {
			return err
		}
	}
	for _, err := range []error{
		each(p, h.Steps(ctx, id), stepLine),
		each(p, h.ToolCalls(ctx, history.Query{Run: id}), toolLine),
		each(p, h.HookRuns(ctx, id), func(r *history.HookRunRow) string {
			return line("hook", r.HookName, labelled("for", r.EventName), r.Status, labelled("patch", string(r.Patch)), r.ErrorMessage)
		}),
		each(p, h.ActionRuns(ctx, id), func(r *history.ActionRunRow) string {
			return line("action", r.ActionName, labelled("by", r.CallerType), r.Status)
		}),
		each(p, h.Artifacts(ctx, id), func(r *history.ArtifactRow) string {
			return line("artifact", r.Type, r.Path, r.ContentRef)
		}),
		each(p, h.Messages(ctx, history.Query{Run: id}), func(m *history.MessageRow) string { return "message  " + messageLine(m) }),
		each(p, h.Runs(ctx, history.Query{Run: id, Oldest: true}), func(r *history.RunRow) string { return "started  " + runLine(r) }),
	} {
		if err != nil {
			return err
		}
	}
	if !asJSON {
		return lastOutput(ctx, a, h, id)
	}
	return nil
}

// lastOutput prints what the command of the last attempt printed.
func lastOutput(ctx context.Context, a *cli.App, h *history.History, id string) error {
	out, err := h.Command(ctx, id)
	if err != nil {
		return err
	}
	if out.Output == "" {
		return nil
	}
	return a.Out.Text(in("output", out.Output))
}

// part prints rows of several entities.
type part struct {
	a    *cli.App
	json bool
}

func (p part) row(r history.Row, text string) error {
	if !p.json {
		return p.a.Out.Text(text + "\n")
	}
	b, err := history.AppendJSON(nil, r)
	if err != nil {
		return err
	}
	p.a.Out.Buf = append(p.a.Out.Buf, `{"entity":"`+string(r.Entity())+`",`...)
	p.a.Out.Buf = append(append(p.a.Out.Buf, b[1:]...), '\n')
	return p.a.Out.More()
}

func each[T any, P interface {
	*T
	history.Row
}](p part, seq iter.Seq2[T, error], text func(*T) string) error {
	for v, err := range seq {
		if err != nil {
			return err
		}
		if err := p.row(P(&v), "  "+text(&v)); err != nil {
			return err
		}
	}
	return nil
}

func stepLine(s *history.StepRow) string {
	took := ""
	if !s.EndedAt.IsZero() && !s.StartedAt.IsZero() {
		took = s.EndedAt.Sub(s.StartedAt).Round(time.Millisecond).String()
	}
	return line("step "+strconv.FormatInt(s.Seq, 10), s.StepType, s.Name, labelled("agent", s.AgentName), s.Status, at(s.StartedAt), took)
}

func toolLine(t *history.ToolCallRow) string {
	took := ""
	if t.DurationMS > 0 {
		took = (time.Duration(t.DurationMS) * time.Millisecond).String()
	}
	return line("tool", t.SourceType+"/"+t.ToolName, t.Status, at(t.StartedAt), took)
}

// in shows a text of several lines below its name.
func in(name, text string) string {
	if text == "" {
		return ""
	}
	b := []byte("  " + name + "\n")
	for l := range lines(text) {
		b = append(b, "    "+terminal.Printable(l)+"\n"...)
	}
	return string(b)
}
