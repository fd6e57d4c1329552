//go:build linux

// Guest is the first and only process of the virtual machine that TestKernel
// (survive/kernel_test.go) cuts the power of. It mounts the disk, and either uses
// the thread on it until it is killed, and prints what was acknowledged on the
// console; before that it writes what it has found of the cut before into a file of the
// root directory, which belongs to the host. It pushes in this process: a start of the program takes a
// second there. On the host, "guest boot KERNEL ARGS..."
// starts that machine.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/backup"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/journal"
)

const (
	thread = "/thread" // the program under test
	disk   = "/mnt"
)

var ctx = context.Background()

// TestMain does nothing when go test starts it: only as the first process of a machine,
// or to start one.
func TestMain(*testing.M) {
	if os.Getpid() != 1 && (len(os.Args) < 3 || os.Args[1] != "boot") {
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "boot" {
		say("FAILED", boot(os.Args[2:]))
		os.Exit(1)
	}
	err := mount()
	if err == nil {
		// The kernel hands down what it does not know of its command line.
		boot, _ := strconv.Atoi(os.Getenv("BOOT"))
		switch os.Getenv("WORK") {
		case "make":
			err = makeThread()
		case "made":
			err = made()
		case "check":
			err = check(here(boot - 1))
		case "use":
			if boot > 0 {
				err = check(here(boot - 1))
			}
			if err == nil {
				err = use(boot)
			}
		}
	}
	if err != nil {
		say("FAILED", err)
	}
	_ = unix.Unmount(disk, 0) // its state is what the host looks at
	unix.Sync()
	say("FAILED", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

// say tells the host, who reads the console.
func say(words ...any) { fmt.Fprintln(os.Stdout, words...) }

func mount() error {
	for _, m := range [][2]string{{"proc", "/proc"}, {"devtmpfs", "/dev"}} {
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil && err != unix.EBUSY {
			return fmt.Errorf("%s: %w", m[1], err)
		}
	}
	modules, err := filepath.Glob("/modules/*.ko") // their names are in the order of need
	if err != nil {
		return err
	}
	slices.Sort(modules)
	for _, m := range modules {
		f, err := os.Open(m)
		if err != nil {
			return err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		f.Close()
	}
	options := ""
	if os.Getenv("FS") == "vfat" {
		options = "fmask=0177,dmask=0077"
	}
	return unix.Mount("/dev/ubda", disk, os.Getenv("FS"), 0, options)
}

// makeThread makes a separate thread for each boot, and in every second one pushes and
// prunes. What it tells is what made must find.
func makeThread() error {
	boot, err := strconv.Atoi(os.Getenv("BOOT"))
	if err != nil {
		return err
	}
	dir := fmt.Sprintf("%s/made%d", disk, boot)
	if _, err := run("", "init", dir); err != nil {
		return err
	}
	if boot%2 == 0 {
		say("MADE", 0, 1)
		select {}
	}
	lines := strings.Repeat(`{"source":"s","type":"t","content":"some text that takes room"}`+"\n", 300)
	if _, err := run(lines, "push", "--thread", dir, "--batch"); err != nil {
		return err
	}
	if _, err := run("", "prune", "--thread", dir, "--keep-last", "10"); err != nil {
		return err
	}
	say("MADE", 291, 301)
	select {}
}

// made tells the id of the first event, 0 for none, and the id of the next one.
func made() error {
	dir := disk + "/made" + os.Getenv("BOOT")
	first, err := run("", "peek", "--thread", dir, "--last-event-id", "0", "--limit", "1")
	if err != nil {
		return err
	}
	id := "0"
	if first != "" {
		id, _, _ = strings.Cut(strings.TrimPrefix(first, `{"id":`), ",")
	}
	next, err := run("", "push", "--thread", dir, "--source", "s", "--type", "t", "--content", "after the cut")
	if err == nil {
		say("FOUND", id, strings.TrimSpace(next))
		err = os.RemoveAll(dir)
	}
	return err
}

// run runs the program under test and returns its output.
func run(stdin string, args ...string) (string, error) {
	cmd := exec.Command(thread, args...)
	cmd.Env = []string{"THREAD_DISPATCH=none", "HOME=/", "GODEBUG=" + os.Getenv("GODEBUG")}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%q: %w: %s", args, err, out)
	}
	return string(out), err
}

// place is what the disk has for ten cuts: the thread, its backups, and a thread with limits.
type place struct{ thread, backups, limited string }

func here(boot int) place {
	at := fmt.Sprintf("%s/from%d", disk, boot/10*10)
	return place{thread: at + "/inbox", backups: at + "/backups", limited: at + "/limited"}
}

// user uses a thread until the power is cut. It prints a line for each call that returned.
type user struct {
	place
	t, limits *engine.Thread
	h         *history.History
	journal   watched
}

const (
	session  = "S"
	consumer = "c"
)

// use makes what is missing, and then pushes one by one and in batches, acks, and writes
// history, as fast as it can. Sometimes it writes the database again, backs it up, or has
// another thread drop events.
func use(boot int) error {
	at := here(boot)
	if boot%10 == 0 && boot > 0 {
		if err := os.RemoveAll(filepath.Dir(here(boot - 1).thread)); err != nil {
			return err
		}
	}
	u := &user{place: at, journal: watched{path: at.thread + "/" + bolt.JournalName}}
	if err := u.open(); err != nil {
		return err
	}
	say("READY")
	for n := 1; ; n++ {
		content := fmt.Sprintf("boot %d push %d %s", boot, n, strings.Repeat("x", n*37%400))
		if err := u.folding(func() error { return u.push(n, content) }); err != nil {
			return err
		}
		for _, also := range []struct {
			every, at int
			do        func(name, content string) error
		}{{4, 1, u.message}, {25, 2, u.run}, {150, 149, u.compact}, {120, 50, u.backUp}, {60, 20, u.limit}} {
			if n%also.every != also.at {
				continue
			}
			if err := also.do(fmt.Sprintf("%d.%d", boot, n), content); err != nil {
				return err
			}
		}
	}
}

func (u *user) open() (err error) {
	kept := engine.WithKeepOpen() // ten times as fast there
	if u.t, err = engine.OpenOrCreate(u.thread, kept); err != nil {
		return err
	}
	if err := u.t.Subscribe(ctx, engine.Subscription{Consumer: consumer, Handler: "true"}); err != nil && !errors.Is(err, engine.ErrSubscriptionExists) {
		return err
	}
	if u.h, err = history.Open(ctx, u.thread, history.WithEngine(kept)); err != nil {
		return err
	}
	if _, err := u.h.StartSession(ctx, history.SessionRow{ID: session}); err != nil && !errors.Is(err, history.ErrExists) {
		return err
	}
	if u.limits, err = engine.OpenOrCreate(u.limited, kept); err != nil {
		return err
	}
	return u.limits.SetLimits(ctx, engine.Limits{MaxEvents: 200})
}

// folding tells the host when a call folds the journal.
func (u *user) folding(call func() error) error {
	folds, err := u.journal.full()
	if err != nil {
		return err
	}
	if !folds {
		return call()
	}
	say("FOLDING")
	err = call()
	say("FOLDED")
	return err
}

// watched reads along in a journal.
type watched struct {
	path string
	f    *os.File
	base [16]byte // epoch and salt
	next uint32   // number of the next record
	slot int64    // of the next record
}

// full reports whether the next commit folds the journal.
func (w *watched) full() (bool, error) {
	if w.f == nil {
		f, err := os.Open(w.path)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		w.f = f
	}
	var b [32]byte // see package journal
	if _, err := w.f.ReadAt(b[:], 0); err != nil {
		return false, err
	}
	if base := [16]byte(b[8:]); base != w.base {
		w.base, w.next, w.slot = base, 0, 0
	}
	for w.slot < journal.Slots {
		if _, err := w.f.ReadAt(b[:], w.slot*journal.SlotBytes); err != nil {
			return false, err
		}
		if [16]byte(b[8:]) != w.base || binary.BigEndian.Uint32(b[24:]) != w.next {
			break
		}
		w.next++
		w.slot += (int64(binary.BigEndian.Uint32(b[4:])) + journal.SlotBytes - 1) / journal.SlotBytes
	}
	return w.slot >= journal.FoldAt, nil
}

// push prints the ids, and the content that all of its events have.
func (u *user) push(n int, content string) error {
	ds := []event.Draft{{Source: "s", Type: "t", Content: content}}
	if n%7 == 0 {
		ds = slices.Repeat(ds, 1+n%20)
	}
	es, err := u.t.PushBatch(ctx, ds)
	if err != nil {
		return err
	}
	say("STORED", es[0].ID, es[len(es)-1].ID, content)
	if n%3 != 0 {
		return nil
	}
	if _, err := u.t.Pop(ctx, consumer, engine.PopQuery{LastAcked: es[0].ID, Limit: 1}); err != nil {
		return err
	}
	say("ACKED", es[0].ID)
	return nil
}

func (u *user) message(name, content string) error {
	m := history.MessageRow{ID: name, SessionID: session, Role: "user", Content: fmt.Appendf(nil, "%q", content)}
	if err := u.h.Put(ctx, &m); err != nil {
		return err
	}
	say("MESSAGE", name)
	return nil
}

func (u *user) run(name, _ string) error {
	r, err := u.h.StartRun(ctx, history.RunRow{ID: name, TriggerType: "system"})
	if err != nil {
		return err
	}
	if _, err := r.Step(ctx, history.StepRow{StepType: "step"}); err != nil {
		return err
	}
	if err := r.End(ctx, history.End{Status: history.Completed}); err != nil {
		return err
	}
	say("ENDED", name)
	return nil
}

func (u *user) compact(string, string) error {
	_, err := u.t.Compact(ctx)
	return err
}

// backUp writes one more backup and tells its name.
func (u *user) backUp(string, string) error {
	done, err := backup.Create(ctx, u.thread, u.backups, 2)
	if err == nil {
		say("SAVED", filepath.Base(done.Dir))
	}
	return err
}

// limit pushes to the thread that has limits, has them kept, and tells its newest id.
func (u *user) limit(_, content string) error {
	es, err := u.limits.PushBatch(ctx, slices.Repeat([]event.Draft{{Source: "s", Type: "t", Content: content}}, 60))
	if err != nil {
		return err
	}
	if _, err := u.limits.Retain(ctx); err != nil {
		return err
	}
	say("LIMITED", es[len(es)-1].ID)
	return nil
}
