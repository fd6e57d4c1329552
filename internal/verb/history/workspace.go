package history

import (
	"context"

	"thread/history"
	"thread/internal/cli"
)

type workspaceSetCmd struct {
	cli.ThreadFlags
	ID       cli.Text `arg:"" optional:"" name:"workspace" help:"The id of another workspace than the directory's; made when it is new."`
	Name     cli.Text `placeholder:"NAME" help:"Its name."`
	Ref      cli.Text `name:"external-ref" placeholder:"REF" help:"What another system calls it."`
	Root     cli.Text `name:"root-path" placeholder:"DIR" help:"Where its files are."`
	Policy   cli.Text `name:"execution-policy" placeholder:"TEXT" help:"How its runs may be executed."`
	Status   cli.Text `placeholder:"STATUS" help:"Its status, active when it is new."`
	Kind     cli.Text `placeholder:"KIND" help:"project or chat. A chat workspace has no mirror in its root."`
	Metadata cli.Text `placeholder:"JSON" help:"More about it."`
	cli.JSONFlag
}

var workspaceSetVerb = &cli.Verb{
	Name: "workspace set", Args: "[workspace]", Summary: "Describe a workspace",
	Details:  `A thread directory is one workspace, unless it is told of more.`,
	Exits:    "0 stored",
	Examples: `thread workspace set --thread ./inbox --name shop --kind project`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(workspaceSetCmd) },
}

func (c *workspaceSetCmd) Run(ctx context.Context, a *cli.App) error {
	metadata, err := jsonText("--metadata", c.Metadata)
	if err != nil {
		return err
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		w, err := h.SetWorkspace(ctx, c.ID.Value, func(w *history.WorkspaceRow) {
			for _, f := range []field{{&w.Name, c.Name}, {&w.ExternalRef, c.Ref}, {&w.RootPath, c.Root}, {&w.ExecutionPolicy, c.Policy}, {&w.Status, c.Status}, {&w.Kind, c.Kind}} {
				if f.text.Set {
					*f.to.(*string) = f.text.Value
				}
			}
			if c.Metadata.Set {
				w.Metadata = metadata
			}
		})
		if err != nil {
			return err
		}
		return put(a, c.JSON, &w, workspaceLine(&w))
	})
}

func workspaceLine(w *history.WorkspaceRow) string {
	own := ""
	if w.Own {
		own = "this directory's"
	}
	return line(w.ID, w.Name, w.Kind, w.Status, w.RootPath, labelled("ref", w.ExternalRef), own)
}

type workspaceShowCmd struct {
	cli.ThreadFlags
	ID cli.Text `arg:"" optional:"" name:"workspace" help:"The id of another workspace than the directory's."`
	cli.JSONFlag
}

var workspaceShowVerb = &cli.Verb{
	Name: "workspace show", Args: "[workspace]", Summary: "Show a workspace",
	Details:  `The directory's workspace is there with the first row that is recorded.`,
	Exits:    "0 shown\n1 there is no such workspace",
	Examples: `thread workspace show --thread ./inbox --json`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(workspaceShowCmd) },
}

func (c *workspaceShowCmd) Run(ctx context.Context, a *cli.App) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		var w history.WorkspaceRow
		if err := h.Get(ctx, &w, c.ID.Value); err != nil {
			return err
		}
		return put(a, c.JSON, &w, workspaceLine(&w))
	})
}

type workspaceListCmd struct {
	cli.ThreadFlags
	Root   cli.Text `name:"root-path" placeholder:"DIR" help:"Only those with this root."`
	Ref    cli.Text `name:"external-ref" placeholder:"REF" help:"Only those that another system calls so."`
	Status cli.Text `placeholder:"STATUS" help:"Only those with this status."`
	cli.JSONFlag
}

var workspaceListVerb = &cli.Verb{
	Name: "workspace list", Summary: "List workspaces, those that changed last first",
	Exits:    "0 listed, perhaps none",
	Examples: `thread workspace list --thread ./inbox`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(workspaceListCmd) },
}

func (c *workspaceListCmd) Run(ctx context.Context, a *cli.App) error {
	table := tableOnTerminal(a, c.JSON, []int{9, 6, 7, 6, 6, 12}, "WORKSPACE", "NAME", "KIND", "STATUS", "REF", "PATH")
	return with(ctx, a, c.Thread, func(h *history.History) error {
		rows := h.Workspaces(ctx, history.WorkspaceQuery{RootPath: c.Root.Value, ExternalRef: c.Ref.Value, Status: c.Status.Value})
		return list(a, c.JSON, rows, table, func(w *history.WorkspaceRow) []string {
			return []string{w.ID, w.Name, w.Kind, w.Status, w.ExternalRef, w.RootPath}
		}, workspaceLine)
	})
}
