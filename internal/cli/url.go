package cli

import (
	"cmp"
	"context"
	"errors"
	"os"

	"thread/engine"
	"thread/internal/address"
	"thread/internal/programs"
)

// Servers opens threads that are on a server.
type Servers interface {
	address.Driver
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
	Lost() <-chan struct{} // closed when the turn may be another process's; nil in a handler of thread serve, which ends it
	Err() error            // why, nil before that
	// Work returns the lock that commands inherit (package command), nil where this host can
	// keep none. It ends first what is left of earlier commands, and calls warn for that.
	Work(ctx context.Context, warn func(format string, args ...any)) (*os.File, error)
	Release(ctx context.Context) error
}

// servers is nil in the programs that know directories only.
var servers Servers

// SetServers says how this program opens threads on a server. It comes before Main.
func SetServers(s Servers) {
	servers = s
	address.SetDriver(s)
}

// LockURL is Lock of the program's Servers.
func LockURL(ctx context.Context, t *engine.Thread, consumer string, wait bool) (Held, error) {
	return servers.Lock(ctx, t, consumer, wait)
}

// IsTaken reports whether Lock returned err because another process has the turn.
func IsTaken(err error) bool {
	var taken interface{ Taken() }
	return errors.As(err, &taken)
}

// HoldURL runs fn in the turn of the consumer. The context of fn ends when the turn is lost. work is
// what Held.Work returned. HoldURL returns nil when ctx ended while it waited.
func HoldURL(ctx context.Context, t *engine.Thread, consumer string, wait bool, warn func(format string, args ...any),
	fn func(ctx context.Context, held Held, work *os.File) error,
) error {
	held, err := LockURL(ctx, t, consumer, wait)
	if err != nil {
		if ctx.Err() != nil {
			err = nil
		}
		return err
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-held.Lost():
			cancel()
		case <-running.Done():
		}
	}()
	work, err := held.Work(running, warn)
	if err == nil {
		err = fn(running, held, work)
	}
	if err == nil {
		err = held.Err()
	}
	if rerr := held.Release(context.WithoutCancel(ctx)); err == nil {
		err = rerr
	}
	return err
}

// IsURL reports whether a thread is named by a URL, and so is on a server.
func IsURL(s string) bool { return address.IsURL(s) }

// namesThread is a grammar that names a thread by something else than --thread, too.
type namesThread interface{ NamesThread() string }

// takesThread is a grammar with the flag --thread.
type takesThread interface{ threadFlag() *Text }

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
	return LogicError("thread "+a.verb.Name+" is for a thread in a directory, not for one in PostgreSQL", cmp.Or(fix, "see docs/reference/postgresql.md for the verbs that are for both"))
}

// becomeNet runs, in place of this program, the one that knows servers.
func (a *App) becomeNet(v *Verb, args []string) error {
	if !a.program.onServers() && !v.Server {
		return a.forDirectories("")
	}
	return a.become(&Entry{Name: v.Name + " with a URL", Program: programs.Net, Source: "build it with make net"}, args)
}

// onServers reports whether thread-net has the verbs of this program, except for those with
// Directories.
func (p *Program) onServers() bool {
	return p.name == programs.Main || p.name == programs.History || p.name == programs.Outbox || p.name == programs.Serve
}

// OpenAddress opens the thread that an address names: a directory, or a URL in a program that
// knows servers.
func (a *App) OpenAddress(at string, opts ...engine.Option) (*engine.Thread, error) {
	t, err := address.Open(at, opts...)
	if errors.Is(err, address.ErrNoDriver) {
		err = a.forDirectories("")
	}
	return t, err
}

// InitURL makes a thread on a server.
func (a *App) InitURL(ctx context.Context) error { return servers.Init(ctx, a.Dir) }
