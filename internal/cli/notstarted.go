package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"thread/engine"
	"thread/internal/dispatch"
	"thread/internal/terminal"
)

// NotStarted warns that no handler could be started, if err is not nil, after what
// is done.
func (a *App) NotStarted(done string, err error) {
	var foreign *dispatch.OwnerError
	switch {
	case err == nil:
	case errors.As(err, &foreign) && foreign.Thread:
		a.Warn("%s, but no handler was started: %v; its next push or thread dispatch starts them", done, err)
	case errors.As(err, &foreign):
		a.Warn("%s, but %v, and handlers cannot use it; %s", done, err, a.giveBack(foreign))
	default:
		a.LogWarning("%s, but no handler could be started: %v; run thread dispatch --thread %s", done, err, a.Dir)
	}
}

// WarnUnpopped says on a terminal, where a person watches, which handlers exited 0 the
// last time and had popped nothing. Elsewhere nothing is looked at: it would cost every
// push.
func (a *App) WarnUnpopped(ctx context.Context, t *engine.Thread) {
	if !terminal.IsTerminal(a.Stderr) {
		return
	}
	consumers, _ := dispatch.Unpopped(ctx, t)
	for _, c := range consumers {
		a.Warn("the handler of consumer '%s' exited 0 without popping anything: call thread pop in it, or run thread subscribe --thread %s --consumer %s --replace -- CMD", c, ShellWord(a.Dir), ShellWord(c))
	}
}

// giveBack is the advice about a file that another account has left in a thread.
func (a *App) giveBack(e *dispatch.OwnerError) string {
	return fmt.Sprintf("as %s, run chown -R %d %s", e.Owner, os.Geteuid(), ShellWord(a.Dir))
}

// aboutOwner puts an OwnerError into words.
func (a *App) aboutOwner(e *dispatch.OwnerError) *Failure {
	if !e.Thread {
		return &Failure{Code: 1, What: e.Error(), Fix: a.giveBack(e)}
	}
	fix := "run it as " + e.Owner
	if e.Mixed != "" {
		fix = "make both belong to one account"
	}
	if list := dispatch.SafeDirectories(); list != "" {
		fix += ", or if you trust every account that can write there, add the line " + e.Path + " to " + list
	}
	return &Failure{Code: 1, What: e.Error(), Fix: fix}
}
