//go:build linux

// Guest is the first and only process of the virtual machine that TestKernel
// (survive/kernel_test.go) cuts the power of. It mounts the disk, and either uses
// the thread on it until it is killed, and prints what was acknowledged on the
// console; or it writes the content into the files check and events of the root
// directory, which belongs to the host. On the host, "guest boot KERNEL ARGS..."
// starts that machine.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	thread  = "/thread"
	disk    = "/mnt"
	dir     = disk + "/inbox"
	backups = disk + "/backups"
	limited = disk + "/limited" // a thread that keeps 200 events by itself
)

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
		switch os.Getenv("WORK") {
		case "check":
			err = check()
		case "make":
			err = makeThread()
		case "made":
			err = made()
		default:
			err = use()
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

// use pushes one by one and in batches, and between them moves a consumer on, writes the
// database again, backs it up, and has another thread drop events, as fast as it can. A line is printed for every push
// that returned 0: the ids, and the content that all of its events have.
func use() error {
	if _, err := os.Stat(dir + "/events.db"); err != nil {
		if _, err := run("", "init", dir); err != nil {
			return err
		}
		if _, err := run("", "subscribe", "--thread", dir, "--consumer", "c", "--handler", "true"); err != nil {
			return err
		}
	}
	if _, err := os.Stat(limited + "/events.db"); err != nil {
		if _, err := run("", "init", limited); err != nil {
			return err
		}
	}
	say("READY")
	boot := os.Getenv("BOOT")
	for n := 1; ; n++ {
		content := fmt.Sprintf("boot %s push %d %s", boot, n, strings.Repeat("x", n*37%700))
		args, stdin := []string{"push", "--thread", dir, "--source", "s", "--type", "t", "--content", content}, ""
		if n%7 == 0 {
			args = []string{"push", "--thread", dir, "--batch"}
			stdin = strings.Repeat(fmt.Sprintf(`{"source":"s","type":"t","content":%q}`+"\n", content), 1+n%40)
		}
		ids, err := run(stdin, args...)
		if err != nil {
			return err
		}
		list := strings.Fields(ids)
		say("STORED", list[0], list[len(list)-1], content)
		if n%5 == 0 {
			if _, err := run("", "ack", "--thread", dir, "--consumer", "c", "--event-id", list[0]); err != nil {
				return err
			}
			say("ACKED", list[0])
		}
		if n%60 == 0 {
			if _, err := run("", "compact", "--thread", dir); err != nil {
				return err
			}
		}
		if n%10 == 4 {
			if err := backUp(); err != nil {
				return err
			}
		}
		if n%6 == 2 {
			if err := limit(content); err != nil {
				return err
			}
		}
	}
}

// backUp writes one more backup and tells its name.
func backUp() error {
	if _, err := run("", "backup", "--thread", dir, backups, "--keep", "2"); err != nil {
		return err
	}
	newest, err := newestBackup()
	if err == nil {
		say("SAVED", filepath.Base(newest))
	}
	return err
}

func newestBackup() (string, error) {
	list, err := filepath.Glob(backups + "/[0-9]*")
	if err != nil || len(list) == 0 {
		return "", err
	}
	return slices.Max(list), nil
}

// limit pushes to the thread that has limits, has them kept, and tells its newest id.
func limit(content string) error {
	ids, err := run(strings.Repeat(fmt.Sprintf(`{"source":"s","type":"t","content":%q}`+"\n", content), 60), "push", "--thread", limited, "--batch")
	if err != nil {
		return err
	}
	if _, err := run("", "retain", "--thread", limited, "--max-events", "200"); err != nil {
		return err
	}
	list := strings.Fields(ids)
	say("LIMITED", list[len(list)-1])
	return nil
}

// checkBackups requires of each backup that it is whole and has the first of the events, and
// that a thread can be made of the newest. It tells the name of that.
func checkBackups(events string) error {
	list, err := filepath.Glob(backups + "/[0-9]*")
	if err != nil {
		return err
	}
	saved := ""
	for _, b := range list {
		if report, err := run("", "check", "--thread", b); err != nil {
			return fmt.Errorf("%w: %s", err, report)
		}
		if saved, err = run("", "peek", "--thread", b, "--last-event-id", "0", "--limit", "1000000"); err != nil {
			return err
		}
		if !strings.HasPrefix(events, saved) {
			return fmt.Errorf("%s has other events than the thread: %d bytes", b, len(saved))
		}
	}
	if len(list) == 0 {
		return nil
	}
	restored := disk + "/restored"
	if _, err := run("", "restore", backups, "--to", restored); err != nil {
		return err
	}
	is, err := run("", "peek", "--thread", restored, "--last-event-id", "0", "--limit", "1000000")
	if err != nil {
		return err
	}
	if is != saved {
		return fmt.Errorf("restored are %d bytes of events, the backup has %d", len(is), len(saved))
	}
	say("BACKUP", filepath.Base(list[len(list)-1]))
	return os.RemoveAll(restored)
}

func check() error {
	report, err := run("", "check", "--thread", dir)
	if err != nil {
		report += err.Error()
	}
	info, err := run("", "info", "--thread", dir, "--json")
	if err != nil {
		return fmt.Errorf("%w; check says: %s", err, report)
	}
	events, err := run("", "peek", "--thread", dir, "--last-event-id", "0", "--limit", "1000000")
	if err != nil {
		return fmt.Errorf("%w; check says: %s", err, report)
	}
	if err := checkBackups(events); err != nil {
		return err
	}
	kept := ""
	if _, err := os.Stat(limited + "/events.db"); err == nil {
		if report, err := run("", "check", "--thread", limited); err != nil {
			return fmt.Errorf("%w; check says: %s", err, report)
		}
		if kept, err = run("", "peek", "--thread", limited, "--last-event-id", "0", "--limit", "1000000"); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"check": report, "info": info, "events": events, "limited": kept} {
		f, err := os.Create("/" + name)
		if err != nil {
			return err
		}
		if _, err := f.WriteString(text); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		f.Close()
	}
	_, err = run("", "push", "--thread", dir, "--source", "s", "--type", "t", "--content", "after the cut")
	if err == nil {
		say("CHECKED")
	}
	return err
}
