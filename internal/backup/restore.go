package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"thread/engine"
	"thread/internal/durable"
	"thread/internal/store/bolt"
	"thread/lock"
)

// Consumers are the consumers of a restored thread.
type Consumers struct {
	Paused  bool // all of them are paused
	Count   int
	Deliver int // how many of them would get events at once
}

// RestoreOptions say what becomes of the consumers of a restored thread.
type RestoreOptions struct {
	Paused  bool // pause them
	Serving bool // a server would find the thread: pause them, but with Deliver
	Deliver bool // leave them as they were in the backup
}

// Restore makes the new directory to of a backup: of the one named, or, where from holds
// backups, of the newest. Nothing that is at to already is replaced, except an empty
// directory: os.ErrExist. It has its name when it was checked; a crash leaves a
// directory <to>.restoring-<number>, in which the copy is one level down, so that no
// server of the directory above finds it. events.jsonl is written again by
// the next push, with its newest lines. Where the thread that was backed up is still
// there, all consumers are paused: both would deliver.
func Restore(ctx context.Context, from, to string, o RestoreOptions) (d Done, err error) {
	if has, err := exists(from); err != nil {
		return d, err
	} else if !has {
		list, err := List(from)
		if err != nil {
			return d, err
		}
		if len(list) == 0 {
			return d, fmt.Errorf("%w in %s", ErrNone, from)
		}
		from = list[len(list)-1]
	}
	info, err := os.Lstat(to)
	if err == nil {
		if entries, err := os.ReadDir(to); !info.IsDir() || len(entries) > 0 || err != nil {
			return d, fmt.Errorf("%w: %s", os.ErrExist, to)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return d, err
	}
	if err := durable.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return d, err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(to), filepath.Base(to)+".restoring-*")
	if err != nil {
		return d, err
	}
	defer os.RemoveAll(tmp)
	made := filepath.Join(tmp, "thread")
	if d, err = copyBackup(ctx, from, made); err != nil {
		return d, err
	}
	pause := !o.Deliver && (o.Paused || o.Serving || originalOf(from))
	if d.Consumers, err = consumersOf(ctx, made, pause); err != nil {
		return d, err
	}
	if info != nil {
		if err := os.Remove(to); err != nil { // not empty any more
			return d, err
		}
	}
	d.Dir, d.Copied = to, d.Events
	return d, rename(made, to)
}

// copyBackup copies a backup with its history, and checks the copy.
func copyBackup(ctx context.Context, from, to string) (d Done, err error) {
	dirs := []string{to}
	for _, sub := range []string{"", historyName} {
		if has, err := exists(filepath.Join(from, sub)); err != nil {
			return d, err
		} else if !has && sub == historyName {
			continue
		}
		if err := os.MkdirAll(filepath.Join(to, sub), 0o700); err != nil {
			return d, err
		}
		if err := copyFile(ctx, filepath.Join(from, sub, bolt.DatabaseName), filepath.Join(to, sub, bolt.DatabaseName)); err != nil {
			return d, err
		}
		// A backup has none, unless it was written to since.
		name := filepath.Join(sub, bolt.JournalName)
		if err := copyFile(ctx, filepath.Join(from, name), filepath.Join(to, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return d, err
		}
		if sub == historyName {
			dirs = []string{filepath.Join(to, sub), to}
		}
	}
	for _, dir := range dirs {
		if d, err = check(ctx, dir); err != nil && damaged(err) && !errors.Is(err, ErrFaults) {
			err = fmt.Errorf("%w: %s: %w", ErrFaults, from, err)
		}
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// originalOf reports whether the thread that was backed up is where it was.
func originalOf(backup string) bool {
	var m madeOf
	text, err := lock.ReadFile(filepath.Join(backup, momentName))
	if err != nil || json.Unmarshal(text, &m) != nil || m.Dir == "" {
		return false
	}
	f, err := os.Open(filepath.Join(m.Dir, bolt.DatabaseName))
	if err != nil {
		return false
	}
	defer f.Close()
	id, err := Identity(f)
	return err == nil && id == m.File // both "" where files have no identity
}

// consumersOf counts the consumers of a thread, and pauses them.
func consumersOf(ctx context.Context, dir string, pause bool) (c Consumers, err error) {
	t, err := engine.Open(dir)
	if err != nil {
		return c, err
	}
	defer t.Close()
	due, err := t.Due(ctx)
	if err != nil {
		return c, err
	}
	info, err := t.Info(ctx)
	if err != nil {
		return c, err
	}
	c = Consumers{Paused: pause, Count: len(info.Subscriptions), Deliver: len(due)}
	for _, s := range info.Subscriptions {
		if !pause || s.Paused {
			continue
		}
		if err := t.Pause(ctx, s.Consumer); err != nil {
			return c, err
		}
	}
	return c, nil
}
