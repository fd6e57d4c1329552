package verb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"os"

	"thread/bridge/config"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/internal/cli"
	"thread/internal/command"
	"thread/lock"
)

// configFlag is embedded by the verbs that read a configuration.
type configFlag struct {
	Config cli.Text `required:"" placeholder:"FILE" help:"The YAML file of the trigger."`
}

// load reads the file of a trigger.
func (c *configFlag) load() (*config.Trigger, error) {
	if c.Config.Value == "" {
		return nil, cli.UsageError("--config is empty", "name a YAML file")
	}
	t, err := config.LoadTrigger(c.Config.Value)
	return t, aboutConfig(err)
}

func aboutConfig(err error) error {
	var bad *config.Error
	if errors.As(err, &bad) {
		return cli.UsageError(trigger.Redact(bad.Error()), "correct that file, see docs/reference/bridge.md; nothing was started")
	}
	return err
}

// nameFlags are embedded by the verbs about one trigger of a thread.
type nameFlags struct {
	cli.ThreadFlags
	Config cli.Text `placeholder:"FILE" help:"The YAML file of the trigger, in place of --name."`
	Name   cli.Text `placeholder:"NAME" help:"The name of the trigger."`
	cli.JSONFlag
}

func (n *nameFlags) name() (string, error) {
	switch {
	case n.Name.Set == n.Config.Set:
		return "", cli.UsageError("one of --name and --config is needed", "give the name of the trigger or its file")
	case n.Name.Set && n.Name.Value == "":
		return "", cli.UsageError("--name is empty", "give the name of the trigger")
	case n.Name.Set:
		return n.Name.Value, nil
	}
	c, err := (&configFlag{Config: n.Config}).load()
	if err != nil {
		return "", err
	}
	return c.Name, nil
}

func printJSON(a *cli.App, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.Out.Text(string(b) + "\n")
}

// holding is the right to be the one trigger or publisher of that name in the thread: two of
// them would read each other's messages.
type holding struct {
	tree  *os.File        // that the programs of a trigger inherit, nil for none
	lost  <-chan struct{} // closed when another host may have the right; nil for a directory
	err   func() error    // why, nil before that
	close func()
}

// turnPrefix is not the beginning of a consumer, which is UTF-8.
const turnPrefix = "\xfd"

// only takes the right: a lock in a directory, and on a server the turn of the handle, which every
// write of it compares. What a run that was killed on this host has left of its programs is ended.
func only(ctx context.Context, t *engine.Thread, kind, name string, log *slog.Logger) (*holding, error) {
	taken := cli.LogicError(kind+" "+name+" runs already in this thread", "stop that process, or give this one another name")
	if t.URL() == "" {
		return onlyHere(ctx, t.Dir(), kind, name, taken, log)
	}
	held, err := cli.LockURL(ctx, t, turnPrefix+kind+"/"+name, false)
	if cli.IsTaken(err) {
		err = taken
	}
	if err != nil {
		return nil, err
	}
	h := &holding{lost: held.Lost(), err: held.Err, close: func() { _ = held.Release(context.WithoutCancel(ctx)) }} // it ends by itself
	h.tree, err = held.Work(ctx, func(format string, args ...any) { log.Warn(fmt.Sprintf(format, args...)) })
	if err != nil {
		h.close()
	}
	return h, err
}

// onlyHere is only for a directory.
func onlyHere(ctx context.Context, dir, kind, name string, taken error, log *slog.Logger) (*holding, error) {
	path := filepath.Join(dir, "run", kind+"-"+name+".lock")
	if err := lock.Mkdir(filepath.Dir(path)); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	held, err := lock.Try(path, lock.Exclusive)
	if errors.Is(err, lock.ErrHeld) {
		err = taken
	}
	if err != nil {
		return nil, err
	}
	h := &holding{err: func() error { return nil }, close: func() { held.Close() }}
	if kind != "trigger" {
		return h, nil
	}
	tree, err := command.TakeTree(ctx, path+"~tree", &command.Left{Trees: []string{path + "~tree"}}, command.Grace, func(pid int, err error) {
		log.Warn("a process that an earlier run has left is ended", "pid", pid, "error", err)
	})
	if errors.Is(err, lock.ErrHeld) && ctx.Err() == nil {
		err = cli.LogicError("the governance program of an earlier run has not ended", "end it and retry")
	}
	if err != nil {
		h.close()
		return nil, err
	}
	h.tree, h.close = tree.File(), func() { tree.Close(); held.Close() }
	return h, nil
}

// while returns a context that also ends when the right is lost.
func (h *holding) while(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-h.lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// logFlags are embedded by the verbs that stay.
type logFlags struct {
	LogFormat cli.Text `name:"log-format" placeholder:"FORMAT" help:"text or json (default text)."`
	Verbose   bool     `help:"Log more."`
}

func (l *logFlags) logger(a *cli.App) (*slog.Logger, error) {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	if l.Verbose {
		o.Level = slog.LevelDebug
	}
	switch l.LogFormat.Or("text") {
	case "text":
		return slog.New(trigger.RedactHandler{Handler: slog.NewTextHandler(a.Stderr, o)}), nil
	case "json":
		return slog.New(trigger.RedactHandler{Handler: slog.NewJSONHandler(a.Stderr, o)}), nil
	}
	return nil, cli.UsageError("--log-format "+l.LogFormat.Value+" is not known", "use text or json")
}

// untilTold returns a context that SIGTERM and SIGINT end.
func untilTold(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
}

// parseTime reads RFC 3339.
func parseTime(flag, s string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return at, cli.UsageError(flag+" "+s+" is neither start, end nor a time", "give start, end, or a time such as 2026-03-18T10:30:00Z")
	}
	return at, nil
}

// aboutConnect puts an error of connecting into words. Waits says that the verb can
// wait for the broker.
func aboutConnect(err error, waits bool) error {
	var ce *trigger.ConnectionError
	if !errors.As(err, &ce) {
		return err
	}
	hint := "check adapter.connection and that the broker runs"
	if waits {
		hint += ", or add --wait-connect to wait for it"
	}
	return cli.LogicError(ce.Error(), hint)
}

// wake starts the handlers that a stored event may have.
func wake(t *engine.Thread, source string, subscribed bool) error {
	return cli.WakeAfterPush(context.Background(), t, engine.Batch{LastSource: source, Subscribed: subscribed})
}

// shellCommand quotes words for sh.
func shellCommand(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = cli.ShellWord(w)
	}
	return strings.Join(quoted, " ")
}
