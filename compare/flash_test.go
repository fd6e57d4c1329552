//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// deviceBytes is the size of the device whose statistics are read.
const deviceBytes = 512 << 20

// device is a file with ext4 that is mounted as a block device.
type device struct{ mount, stat string }

func (l *lab) newDevice() (d *device, err error) {
	image := l.path("device.img")
	d = &device{mount: l.path("device")}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Truncate(image, deviceBytes), os.Mkdir(d.mount, 0o700)); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image}, {"mount", "-o", "loop", image, d.mount}} {
		if err := run("", args...); err != nil {
			return nil, err
		}
	}
	out, err := exec.Command("losetup", "-n", "-O", "NAME", "-j", image).Output()
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.stat = filepath.Join("/sys/block", filepath.Base(strings.TrimSpace(string(out))), "stat")
	return d, nil
}

func (d *device) close() error { return run("", "umount", d.mount) }

// written returns how many bytes and flushes the device was given, when all has reached it.
func (d *device) written() (bytes, flushes int64, err error) {
	f, err := os.Open(d.mount)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return 0, 0, err
	}
	text, err := os.ReadFile(d.stat)
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(text)) // Documentation/block/stat.rst of Linux
	if len(fields) < 16 {
		return 0, 0, fmt.Errorf("%s has no number of flushes; it takes Linux 5.5 or later", d.stat)
	}
	sectors, err := strconv.ParseInt(fields[6], 10, 64)
	if err != nil {
		return 0, 0, err
	}
	flushes, err = strconv.ParseInt(fields[15], 10, 64)
	return sectors * 512, flushes, err
}

// flash counts what a device is given: its bytes, and its flushes, which are the syncs.
func (l *lab) flash() error {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "  not measured: only root mounts a device")
		return nil
	}
	d, err := l.newDevice()
	if err != nil {
		fmt.Fprintf(os.Stderr, "  not measured: %v\n", err) // a host without loop devices, or mkfs.ext4
		return nil
	}
	return errors.Join(l.onDevice(d), d.close())
}

func (l *lab) onDevice(d *device) error {
	const n, batch = 200, 60
	at := func(name string) string { return filepath.Join(d.mount, name) }
	if err := errors.Join(run("", l.thread, "init", at("t")), run("", l.thread, "init", "--lines", "off", at("quiet")),
		run("", l.thread, "init", at("acked")), run("", l.thread, "subscribe", "--thread", at("acked"), "--consumer", "c", "--handler", "true")); err != nil {
		return err
	}
	lines, err := l.writeLines("batch.ndjson", batch)
	if err != nil {
		return err
	}
	if err := run(lines, l.self, workerVerb, "ingest", "sqlite3", at("s.db")); err != nil {
		return err
	}
	content := payload[:200]
	push := func(thread string) func(int) error {
		return func(int) error {
			return runWith(append(os.Environ(), "THREAD_DISPATCH=none"), "", l.thread, "push", "--thread", at(thread), "--source", "s", "--type", "message", "--content", content)
		}
	}
	shell := func(int) error {
		return run("", l.shell, at("s.db"), "PRAGMA synchronous=FULL; INSERT INTO events (source, type, content) VALUES ('s', 'message', '"+content+"');")
	}
	if err := errors.Join(push("t")(0), push("quiet")(0), push("acked")(0), shell(0)); err != nil { // the first one makes files
		return err
	}
	for _, row := range []struct {
		what                 string
		each                 int // events of one call
		ours, theirs         func(int) error
		mostBytes, mostSyncs float64
	}{
		{"one push of 200 bytes", 1, push("t"), shell, 6 << 10, 1.1},
		{"the same with --lines off", 1, push("quiet"), nil, 0, 0},
		{"a push and the ack of its consumer", 1, func(i int) error {
			return errors.Join(push("acked")(i), run("", l.thread, "pop", "--thread", at("acked"), "--consumer", "c", "--last-event-id", strconv.Itoa(i+2)))
		}, nil, 12 << 10, 2.1},
		{"an event in batches of 60", batch, func(int) error {
			return runWith(append(os.Environ(), "THREAD_DISPATCH=none"), lines, l.thread, "push", "--thread", at("t"), "--batch", "--quiet")
		}, nil, 1126, 0},
	} {
		bytes, syncs, err := d.cost(n, row.each, row.ours)
		if err != nil {
			return err
		}
		next := "–"
		if row.theirs != nil {
			b, s, err := d.cost(n, row.each, row.theirs)
			if err != nil {
				return err
			}
			next = fmt.Sprintf("%.0f bytes, %.2f syncs (shell, with its checkpoint)", b, s)
		}
		l.add(counted("bytes to the device of "+row.what, bytes, next, row.mostBytes, "bytes"))
		l.add(counted("syncs of "+row.what, syncs, next, row.mostSyncs, "syncs"))
	}
	return nil
}

func counted(what string, is float64, next string, asked float64, unit string) row {
	return row{what: what, ours: number(is) + " " + unit, theirs: next, figure: is, asked: asked, unit: unit}
}

// cost returns what an event costs in bytes and flushes, over n calls with that many events each.
func (d *device) cost(n, each int, call func(int) error) (bytes, flushes float64, err error) {
	bytesBefore, flushesBefore, err := d.written()
	if err != nil {
		return 0, 0, err
	}
	for i := range n {
		if err := call(i); err != nil {
			return 0, 0, err
		}
	}
	bytesAfter, flushesAfter, err := d.written()
	events := float64(n * each)
	return float64(bytesAfter-bytesBefore) / events, float64(flushesAfter-flushesBefore) / events, err
}
