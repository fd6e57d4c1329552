package history

import (
	"context"
	"slices"
	"strconv"

	"thread/event"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type sessionStartCmd struct {
	cli.ThreadFlags
	ID          cli.Text `name:"id" placeholder:"ID" help:"Its id; a new one without it."`
	Subject     cli.Text `placeholder:"REF" help:"Who it is for, in the words of your own system."`
	Agent       cli.Text `placeholder:"AGENT" help:"The agent."`
	Title       cli.Text `placeholder:"TEXT" help:"A title."`
	AuthContext cli.Text `name:"auth-context" placeholder:"JSON" help:"What your own system has to remember about who asks. No credentials."`
	Workspace   cli.Text `placeholder:"WORKSPACE" help:"Another workspace than the directory's."`
	cli.JSONFlag
}

var sessionStartVerb = &cli.Verb{
	Name: "session start", Summary: "Start a session and print its id",
	Exits:    "0 started\n1 the session exists",
	Examples: `thread session start --thread ./inbox --subject user:7 --agent coder`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(sessionStartCmd) },
}

func (c *sessionStartCmd) Run(ctx context.Context, a *cli.App) error {
	auth, err := jsonText("--auth-context", c.AuthContext)
	if err != nil {
		return err
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		s, err := h.StartSession(ctx, history.SessionRow{ID: c.ID.Value, SubjectRef: c.Subject.Value, AgentName: c.Agent.Value,
			Title: c.Title.Value, AuthContext: auth, WorkspaceID: c.Workspace.Value})
		if err != nil {
			return err
		}
		return put(a, c.JSON, &s, s.ID)
	})
}

type sessionListCmd struct {
	cli.ThreadFlags
	Subject   cli.Text `placeholder:"REF" help:"Only those for this subject."`
	Status    cli.Text `placeholder:"STATUS" help:"Only those with this status, by their last change."`
	Workspace cli.Text `placeholder:"WORKSPACE" help:"Only this workspace's."`
	Limit     cli.Text `placeholder:"N" help:"At most N."`
	cli.JSONFlag
}

var sessionListVerb = &cli.Verb{
	Name: "session list", Summary: "List sessions, newest first",
	Exits:    "0 listed, perhaps none",
	Examples: `thread session list --thread ./inbox --subject user:7 --limit 10`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(sessionListCmd) },
}

func (c *sessionListCmd) Run(ctx context.Context, a *cli.App) error {
	limit, err := limitOf(c.Limit)
	if err != nil {
		return err
	}
	table := tableOnTerminal(a, c.JSON, []int{8, 6, 6, 8, 19, 19, 8}, "SESSION", "STATUS", "AGENT", "SUBJECT", "CREATED", "LAST RUN", "TITLE")
	return with(ctx, a, c.Thread, func(h *history.History) error {
		rows := h.Sessions(ctx, history.Query{Subject: c.Subject.Value, Status: c.Status.Value, Workspace: c.Workspace.Value, Limit: limit})
		return list(a, c.JSON, rows, table, func(s *history.SessionRow) []string {
			return []string{s.ID, s.Status, s.ActiveAgentName, s.SubjectRef, at(s.CreatedAt), at(s.LastRunAt), s.Title}
		}, sessionLine)
	})
}

func sessionLine(s *history.SessionRow) string {
	return line(s.ID, s.Status, labelled("agent", s.ActiveAgentName), labelled("for", s.SubjectRef), at(s.CreatedAt), labelled("last run", at(s.LastRunAt)), s.Title)
}

type sessionShowCmd struct {
	cli.ThreadFlags
	ID cli.Text `arg:"" name:"session" help:"The id of the session."`
	cli.JSONFlag
}

var sessionShowVerb = &cli.Verb{
	Name: "session show", Args: "<session>", Summary: "Show a session with its messages and runs",
	Details:  `With --json only the row of the session; its messages and runs have separate lists.`,
	Exits:    "0 shown\n1 there is no such session",
	Examples: `thread session show --thread ./inbox S`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(sessionShowCmd) },
}

func (c *sessionShowCmd) Run(ctx context.Context, a *cli.App) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		var s history.SessionRow
		if err := h.Get(ctx, &s, c.ID.Value); err != nil {
			return err
		}
		if err := put(a, c.JSON, &s, sessionLine(&s)); err != nil || c.JSON {
			return err
		}
		messages := h.Messages(ctx, history.Query{Session: s.ID})
		if err := list(a, false, messages, nil, nil, func(m *history.MessageRow) string { return "  " + messageLine(m) }); err != nil {
			return err
		}
		runs := h.Runs(ctx, history.Query{Session: s.ID, Oldest: true})
		return list(a, false, runs, nil, nil, func(r *history.RunRow) string { return "  run " + runLine(r) })
	})
}

type sessionDeleteCmd struct {
	cli.ThreadFlags
	ID cli.Text `arg:"" name:"session" help:"The id of the session."`
	cli.JSONFlag
}

var sessionDeleteVerb = &cli.Verb{
	Name: "session delete", Args: "<session>", Summary: "Delete a session with its messages and runs",
	Details: `All of it goes in one commit. The history events of the rows stay in the log until
thread history prune drops them.`,
	Exits:    "0 deleted\n1 there is no such session, or a run of it has not ended",
	Examples: `thread session delete --thread ./inbox S`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(sessionDeleteCmd) },
}

func (c *sessionDeleteCmd) Run(ctx context.Context, a *cli.App) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		if err := h.DeleteSession(ctx, c.ID.Value); err != nil {
			return err
		}
		if c.JSON {
			return a.Out.Text(string(event.AppendString([]byte(`{"id":`), c.ID.Value)) + ",\"deleted\":true}\n")
		}
		return a.Out.Text("Deleted session '" + terminal.Printable(c.ID.Value) + "'\n")
	})
}

type messageAddCmd struct {
	cli.ThreadFlags
	Session     cli.Text `placeholder:"SESSION" help:"The session; by default that in THREAD_SESSION_ID."`
	Role        cli.Text `required:"" placeholder:"ROLE" help:"user, assistant, tool or system."`
	Content     cli.Text `placeholder:"TEXT" help:"The content as plain text."`
	ContentFile cli.Text `name:"content-file" placeholder:"FILE" help:"The content as JSON, a string or an array of parts; - for stdin."`
	RunID       cli.Text `name:"run" placeholder:"RUN" help:"The run that it belongs to; by default that in THREAD_RUN_ID."`
	Attempt     cli.Text `placeholder:"N" help:"The attempt of the run, as of thread run step."`
	ID          cli.Text `name:"id" placeholder:"ID" help:"Its id; a new one without it. An id that is taken is refused."`
	Metadata    cli.Text `placeholder:"JSON" help:"More about it."`
	cli.JSONFlag
}

var messageAddVerb = &cli.Verb{
	Name: "message add", Summary: "Add a message to a session and print its id",
	Details: `Content is kept byte for byte, as the AI SDK has it: a string, or an array of parts,
calls of tools and their results among them.`,
	Exits: "0 added\n1 there is no such session, or the message exists",
	Examples: `thread message add --thread ./inbox --session S --role user --content "hello"
jq -c .content reply.json | thread message add --thread ./inbox --session S --role assistant --content-file -`,
	Errors: errorWords, Grammar: func() cli.Command { return new(messageAddCmd) },
}

func (c *messageAddCmd) Run(ctx context.Context, a *cli.App) error {
	m := history.MessageRow{ID: c.ID.Value, SessionID: c.Session.Or(env(envSession)), Role: c.Role.Value}
	var err error
	switch {
	case m.SessionID == "":
		return cli.UsageError("missing flag --session", "add it; only in the command of a run it has a default")
	case c.Content.Set == c.ContentFile.Set:
		return cli.UsageError("give one of --content and --content-file", "add --content TEXT, or --content-file - and the JSON on stdin")
	case c.Content.Set:
		m.Content = event.AppendString(nil, c.Content.Value)
	default:
		m.Content, err = jsonFrom(a, "--content-file", c.ContentFile)
	}
	if err != nil {
		return err
	}
	m.Metadata, err = jsonText("--metadata", c.Metadata)
	if err != nil {
		return err
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		run := runFlags{RunID: c.RunID, Attempt: c.Attempt}
		write := func(tx *history.Tx) error {
			if m.ID != "" {
				if taken, err := tx.Get(new(history.MessageRow), m.ID); err != nil {
					return err
				} else if taken {
					return cli.LogicError("message "+strconv.Quote(m.ID)+" exists", "leave --id out, or name another one")
				}
			}
			return tx.Put(&m)
		}
		var err error
		switch m.RunID = c.RunID.Or(recorded(ctx, h, env(envRun))); {
		case m.RunID == "" && m.ID == "":
			err = h.Put(ctx, &m)
		case m.RunID == "":
			err = h.Update(ctx, write)
		default:
			run.RunID = cli.Text{Value: m.RunID, Set: true}
			var r *history.Run
			if r, err = run.attach(h); err == nil {
				err = r.Update(ctx, func(tx *history.Tx, _ *history.RunRow) error { return write(tx) })
			}
		}
		if err != nil {
			return err
		}
		return put(a, c.JSON, &m, m.ID)
	})
}

type messageListCmd struct {
	cli.ThreadFlags
	Session cli.Text `placeholder:"SESSION" help:"The session; by default that in THREAD_SESSION_ID."`
	RunID   cli.Text `name:"run" placeholder:"RUN" help:"Only this run's."`
	Last    cli.Text `placeholder:"N" help:"Only the last N."`
	cli.JSONFlag
}

var messageListVerb = &cli.Verb{
	Name: "message list", Summary: "Print the messages of a session, in order",
	Details: `With --json one array of objects with role and content, as the next call of a model takes
it, and the content as it was added.`,
	Exits:    "0 printed, perhaps none\n1 there is no such session",
	Examples: `thread message list --thread ./inbox --session S --json | ./call-the-model`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(messageListCmd) },
}

func (c *messageListCmd) Run(ctx context.Context, a *cli.App) error {
	last, err := limitOf(c.Last)
	if err != nil {
		return err
	}
	q := history.Query{Session: c.Session.Or(env(envSession)), Run: c.RunID.Value, Limit: last, Oldest: last > 0}
	if q.Session == "" && q.Run == "" {
		return cli.UsageError("missing flag --session", "add it; only in the command of a run it has a default")
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		if q.Run == "" {
			if err := h.Get(ctx, new(history.SessionRow), q.Session); err != nil {
				return err
			}
		}
		var messages []history.MessageRow
		for m, err := range h.Messages(ctx, q) {
			if err != nil {
				return err
			}
			messages = append(messages, m)
		}
		if q.Oldest {
			slices.Reverse(messages)
		}
		if !c.JSON {
			table := tableOnTerminal(a, false, []int{19, 4, 8}, "CREATED", "ROLE", "CONTENT")
			return list(a, false, func(yield func(history.MessageRow, error) bool) {
				for i := 0; i < len(messages) && yield(messages[i], nil); i++ {
				}
			}, table, func(m *history.MessageRow) []string { return []string{at(m.CreatedAt), m.Role, string(m.Content)} }, messageLine)
		}
		a.Out.Buf = append(a.Out.Buf, '[')
		for i, m := range messages {
			if i > 0 {
				a.Out.Buf = append(a.Out.Buf, ',')
			}
			a.Out.Buf = event.AppendString(append(a.Out.Buf, `{"role":`...), m.Role)
			a.Out.Buf = append(append(append(a.Out.Buf, `,"content":`...), m.Content...), '}')
			if err := a.Out.More(); err != nil {
				return err
			}
		}
		return a.Out.Text("]\n")
	})
}

func messageLine(m *history.MessageRow) string {
	return line(at(m.CreatedAt), m.Role, string(m.Content))
}
