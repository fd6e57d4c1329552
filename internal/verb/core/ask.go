package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"thread/event"
	"thread/internal/cli"
	"thread/internal/jsonform"
)

// reply makes the draft an answer to --reply-to.
func (c *pushCmd) reply(d *event.Draft) error {
	id, ok := cli.ParseNumber(c.ReplyTo.Value)
	if !ok || id == 0 {
		return cli.UsageError(fmt.Sprintf("--reply-to %q is not the id of an event", c.ReplyTo.Value), "give the number that push printed for it")
	}
	content, err := jsonform.Reply(d.Content, id)
	if err != nil {
		return cli.UsageError(err.Error(), "leave --reply-to out, or the member of the content")
	}
	d.Content = content
	return nil
}

type askCmd struct {
	cli.ThreadFlags
	Source      cli.Text `required:"" placeholder:"SOURCE" help:"Who asks."`
	Type        cli.Text `required:"" placeholder:"TYPE" help:"What the event is."`
	Subtype     cli.Text `placeholder:"SUBTYPE" help:"What the event is more precisely."`
	Content     cli.Text `placeholder:"TEXT" help:"The payload. Required without --content-file."`
	File        cli.Text `name:"content-file" placeholder:"FILE" help:"Read the payload from this file, - for stdin, instead of --content."`
	Key         cli.Text `name:"dedupe-key" placeholder:"TEXT" help:"Ask once: with a key that was used before, wait for the reply to that event."`
	Timeout     cli.Text `placeholder:"DURATION" help:"How long to wait for the reply (default 30s)."`
	ContentOnly bool     `name:"content-only" help:"Print what was given as the reply's content, not the event."`
	cli.JSONFlag
}

var askVerb = &cli.Verb{
	Name:    "ask",
	Summary: "Push an event and wait for the reply to it",
	Details: `The reply is the first event that was pushed with --reply-to and the id of this one.
It is printed as JSON. Exit code 1 means that none came in time; the question is
stored all the same, with the id that the message names. A handler answers with
thread push --reply-to "$THREAD_EVENT_ID". The link is the member reply_to of the
reply's content, a JSON object: other text is in its member content.`,
	Exits: "0 the reply is printed\n1 no reply came within --timeout: the question stays stored\n130 interrupted, or the reader of stdout is gone, before a reply",
	Examples: `thread ask --thread ./inbox --source me --type question --content "What is 6 * 7?" --timeout 1m
thread push --thread ./inbox --source you --type answer --reply-to 7 --content 42
thread ask --thread ./inbox --source me --type question --content-only --content-file - < question.txt`,
	Grammar: func() cli.Command { return new(askCmd) },
}

func (c *askCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenEvents(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	timeout, err := cli.ParseDuration("--timeout", c.Timeout.Or("30s"))
	if err != nil {
		return err
	}
	if c.Key.Set && c.Key.Value == "" {
		return cli.UsageError("--dedupe-key is empty", "give a key, or leave it out")
	}
	replaced := new(int)
	push := pushCmd{Source: c.Source, Type: c.Type, Subtype: c.Subtype, Content: c.Content, File: c.File, Key: c.Key}
	draft, err := push.draft(a.Stdin, replaced)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := t.PushAll(ctx, one(draft))
	if err != nil {
		return err
	}
	var id int64
	for id = range b.IDs() {
	}
	if b.First != 0 {
		a.LogPush(false, draft, b)
		warnReplaced(a, replaced)
		a.NotStarted("ask: the event is stored", cli.WakeAfterPush(ctx, t, b))
	}
	where := jsonform.RepliesTo(id)
	err = await(ctx, a, t, id, where, timeout, func(e *event.Event) (bool, error) {
		if c.ContentOnly {
			return false, a.Out.Text(jsonform.Answer(e.Content) + "\n")
		}
		return false, a.Out.Event(e)
	})
	if errors.Is(err, errTimeout) {
		return cli.LogicError(fmt.Sprintf("no reply to event %d came within %s", id, c.Timeout.Or("30s")),
			fmt.Sprintf("wait on with thread tail --thread %s --last-event-id %d --limit 1 --filter %s", cli.ShellWord(a.Dir), id, cli.ShellWord(where)))
	}
	if ctx.Err() != nil {
		return cli.Exited(130)
	}
	return err
}
