package cli

import (
	"cmp"
	"context"
	"strings"

	"thread/engine"
	"thread/internal/programs"
)

// Servers opens threads that are on a server.
type Servers interface {
	Open(url string, opts []engine.Option) (*engine.Thread, error)
	Init(ctx context.Context, url string) error
	// Lock makes this process the one that works for the consumer, on all hosts. Where
	// another one does, it waits if wait is set, or returns an error.
	Lock(ctx context.Context, t *engine.Thread, consumer string, wait bool) (Held, error)
	// Join makes what a handler does for its consumer a part of the turn that thread serve
	// has for it; elsewhere it does nothing.
	Join(t *engine.Thread, consumer string)
	Errors(a *App) []Rule // lines of the table of error words
}

// Held is a consumer's turn.
type Held interface {
	Lost() <-chan struct{} // closed when the turn may be another process's
	Err() error            // why, nil before that
	Release(ctx context.Context) error
}

// servers is nil in the programs that know directories only.
var servers Servers

// SetServers says how this program opens threads on a server. It comes before Main.
func SetServers(s Servers) { servers = s }

// LockURL is Lock of the program's Servers.
func LockURL(ctx context.Context, t *engine.Thread, consumer string, wait bool) (Held, error) {
	return servers.Lock(ctx, t, consumer, wait)
}

// IsURL reports whether a thread is named by a URL, and so is on a server.
func IsURL(s string) bool {
	scheme, _, found := strings.Cut(s, "://")
	return found && (strings.EqualFold(scheme, "postgres") || strings.EqualFold(scheme, "postgresql"))
}

// namesThread is a grammar that names a thread by something else than --thread, too.
type namesThread interface{ NamesThread() string }

// urlOf returns the URL by which a command line names its thread, "" for a directory.
func urlOf(cmd Command) string {
	if with, ok := cmd.(takesThread); ok {
		for t := with.threadFlag(); t != nil; t = t.before {
			if IsURL(t.Value) {
				return t.Value
			}
		}
	}
	if with, ok := cmd.(namesThread); ok && IsURL(with.NamesThread()) {
		return with.NamesThread()
	}
	return ""
}

// forDirectories is the error of a verb that a thread on a server does not have.
func (a *App) forDirectories(fix string) error {
	return LogicError("thread "+a.verb.Name+" is for a thread in a directory, not for one in PostgreSQL", cmp.Or(fix, "see docs/FLEET.md for the verbs that are for both"))
}

// becomeNet runs, in place of this program, the one that knows servers.
func (a *App) becomeNet(v *Verb, args []string) error {
	if !a.program.main() && !v.Server {
		return a.forDirectories("")
	}
	return a.become(&Entry{Name: v.Name + " with a URL", Program: programs.Net, Source: "build it with make net"}, args)
}

// main reports whether this is the program that runs the others.
func (p *Program) main() bool { return p.name == programs.Main }

// reopen opens the thread again, to say more about an error.
func (a *App) reopen() (*engine.Thread, error) {
	if IsURL(a.Dir) {
		return a.openURL(nil)
	}
	return engine.Open(a.Dir)
}

func (a *App) openURL(opts []engine.Option) (*engine.Thread, error) {
	if servers == nil {
		return nil, a.forDirectories("")
	}
	return servers.Open(a.Dir, opts)
}

// InitURL makes a thread on a server.
func (a *App) InitURL(ctx context.Context) error { return servers.Init(ctx, a.Dir) }
