// Package servers opens threads in PostgreSQL for the programs of this repository, and keeps the
// turns of what they run.
package servers

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/store"
	"thread/net/pgstore"
)

// Use lets the verbs of this program open threads in PostgreSQL. It comes before cli.Main.
func Use() { cli.SetServers(Servers{}) }

// Servers implements cli.Servers.
type Servers struct{}

// Open implements cli.Servers.
func (Servers) Open(url string, opts []engine.Option) (*engine.Thread, error) {
	address, err := pgstore.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return engine.OpenStore(url, store.Place{Dir: place(url)}, func(l store.Logic, lockWait time.Duration) store.Store {
		return pgstore.Open(address, pgstore.Options{Logic: l, LockTimeout: lockWait})
	}, opts...), nil
}

// place is where a host keeps the locks of what it runs for the thread (tree).
func place(url string) string {
	state := os.Getenv("XDG_STATE_HOME")
	home := os.Getenv("HOME")
	if u, err := user.Current(); !filepath.IsAbs(home) && err == nil {
		home = u.HomeDir // a service has no HOME
	}
	if !filepath.IsAbs(state) && filepath.IsAbs(home) {
		state = filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(state) {
		state = filepath.Join(string(filepath.Separator), "nonexistent")
	}
	sum := sha256.Sum256([]byte(url))
	return filepath.Join(state, "thread", fmt.Sprintf("%x", sum[:8]))
}

// Init implements cli.Servers.
func (Servers) Init(ctx context.Context, url string) error {
	address, err := pgstore.ParseURL(url)
	if err != nil {
		return err
	}
	return pgstore.Init(ctx, address)
}

// Errors implements cli.Servers.
func (Servers) Errors(a *cli.App) []cli.Rule {
	url := cli.ShellWord(a.Dir)
	return []cli.Rule{
		{Is: pgstore.ErrPassword, Code: 2, Fix: "put it into ~/.pgpass, a service file or PGPASSWORD, and change it, because others may have seen it"},
		{Is: pgstore.ErrURL, Code: 2, Fix: "give postgres://[user@]host[:port]/database?thread=NAME"},
		{Is: pgstore.ErrMayNot, Code: 1, Fix: "let one that may run thread-net schema | psql, as that file says"},
		{Is: pgstore.ErrNoUse, Code: 1, Fix: "let its owner grant it what thread-net schema says, or name another one with schema=NAME"},
		{Is: pgstore.ErrOtherSchema, Code: 1, Fix: "name another one with schema=NAME, or drop it if it is empty and run thread init " + url},
		{Is: pgstore.ErrWeak, Code: 1, Fix: "set it as PostgreSQL's manual says, or if that may be add durability=any to the URL"},
		{Is: pgstore.ErrTurnTaken, Code: 1, Fix: "wait until it is done, or give thread consume --follow, which takes over"},
		{Is: pgstore.ErrTurnLost, Code: 1, Fix: "nothing was stored here any more; run it again to wait for the turn"},
		{Is: ErrCutOff, Code: 1, Fix: "check the connection to the server and run it again"},
		{Is: pgstore.ErrImporting, Code: 1, Fix: "run thread import with the same source again; it continues where it was"},
		{Is: engine.ErrNotThread, Code: 1, What: "there is no thread at " + a.Dir, Fix: "run thread init " + url},
		{Is: engine.ErrExists, Code: 1, What: a.Dir + " is already a thread", Fix: "use it with --thread " + url + ", or give another name"},
		{Is: engine.ErrCorrupt, Code: 1, Fix: "restore the database from a backup"},
	}
}
