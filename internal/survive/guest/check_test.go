//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"thread/engine"
	"thread/history"
	"thread/internal/backup"
	"thread/internal/fsck"
)

// found is what a thread has, for the host.
type found struct {
	Events         []stored
	Acked          int64
	Backup         string // the newest
	Limited        []int64
	Messages, Runs []string // of runs, those that are completed with their step
}

type stored struct {
	ID      int64
	Content string
}

// check checks all threads of the disk, and writes what it has found for the host. The
// program must then push.
func check(at place) error {
	var f found
	t, err := sound(at.thread, &f.Events)
	if err != nil {
		return err
	}
	defer t.Close()
	info, err := t.Info(ctx)
	if err != nil {
		return err
	}
	for _, c := range info.Subscriptions {
		f.Acked = c.LastAcked
	}
	if f.Backup, err = checkBackups(at, f.Events); err != nil {
		return err
	}
	if err := checkHistory(at.thread, &f); err != nil {
		return err
	}
	var kept []stored
	l, err := sound(at.limited, &kept)
	if err != nil {
		return err
	}
	defer l.Close()
	for _, e := range kept {
		f.Limited = append(f.Limited, e.ID)
	}
	if err := writeFound(&f); err != nil {
		return err
	}
	if _, err = run("", "push", "--thread", at.thread, "--source", "s", "--type", "t", "--content", "after the cut"); err == nil {
		say("CHECKED")
	}
	return err
}

// writeFound writes it for the host, which reads it as soon as it is told.
func writeFound(f *found) error {
	to, err := os.Create("/found")
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(to).Encode(f), to.Sync(), to.Close())
}

// sound opens a thread without a fault, and reads its events.
func sound(dir string, events *[]stored) (*engine.Thread, error) {
	t, err := engine.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	report, err := fsck.Check(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if len(report.Faults) > 0 || report.Digest == "" {
		return nil, fmt.Errorf("%s: check says %v", dir, report.Faults)
	}
	for e, err := range t.Events(ctx, engine.Query{}) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		*events = append(*events, stored{e.ID, e.Content})
	}
	return t, nil
}

// checkBackups requires of each backup that it is whole and has the first of the events, and
// that a thread can be made of the newest, whose name it returns.
func checkBackups(at place, events []stored) (string, error) {
	list, err := backup.List(at.backups)
	if err != nil || len(list) == 0 {
		return "", err
	}
	restored := filepath.Dir(at.thread) + "/restored"
	if _, err := backup.Restore(ctx, at.backups, restored, backup.RestoreOptions{}); err != nil {
		return "", err
	}
	for _, dir := range append(list, restored) {
		var saved []stored
		t, err := sound(dir, &saved)
		if err != nil {
			return "", err
		}
		t.Close()
		if len(saved) > len(events) || !slices.Equal(saved, events[:len(saved)]) {
			return "", fmt.Errorf("%s has other events than the thread: %d of %d", dir, len(saved), len(events))
		}
	}
	return filepath.Base(list[len(list)-1]), os.RemoveAll(restored)
}

func checkHistory(dir string, f *found) error {
	h, err := history.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer h.Close()
	var logged []stored
	t, err := sound(h.Dir(), &logged)
	if err != nil {
		return err
	}
	defer t.Close()
	for m, err := range h.Messages(ctx, history.Query{Session: session}) {
		if err != nil {
			return err
		}
		f.Messages = append(f.Messages, m.ID)
	}
	for r, err := range h.Runs(ctx, history.Query{Status: history.Completed}) {
		if err != nil {
			return err
		}
		for _, err := range h.Steps(ctx, r.ID) {
			if err != nil {
				return err
			}
			f.Runs = append(f.Runs, r.ID)
		}
	}
	return nil
}
