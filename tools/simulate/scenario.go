//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/fsck"
)

// scenario is what runs at once, in the thread of its template. In a command, _ stands for a
// blank, and HANDLER for a handler.
type scenario struct {
	name    string
	before  []string // commands that make the template, not scheduled
	atOnce  []string
	after   [][2]string // commands after a schedule without a fault, and what they must print, a regular expression
	windows []window
	refused string // a command that may end with 1
	fault   string // the fault of every schedule
	victim  string // the one to kill in every schedule; "": any one, in some
	unread  bool   // events may stay unread
	pruned  bool   // all events but one may be gone
}

// The handler prints each event that it takes, and a line when another one runs.
const handler = `sh $THREAD_DIR/../../handler`

const handlerScript = `log=$THREAD_DIR.log n=$THREAD_LAST_ACKED_ID
exec 9>>$log.lock
flock -n 9 || echo two handlers at once >>$log
while m=$(thread pop --thread $THREAD_DIR --consumer $THREAD_CONSUMER --last-event-id $n --limit 10) && [ -n "$m" ]; do
	echo "$m" >>$log
	m=${m##*\"id\":} n=${m%%,*}
done
`

// The command of thread consume does the same.
const workScript = `log=$THREAD_DIR.log
exec 9>>$log.lock
flock -n 9 || echo two handlers at once >>$log
thread peek --last-event-id 0 >/dev/null
cat >>$log
`

// bench runs scenarios in one place.
type bench struct {
	l        *launcher
	programs string
	work     string
	dir      string // of a schedule: t is the thread, log what handlers print
}

func (b *bench) environment() []string {
	return []string{"PATH=" + b.programs + ":/usr/bin:/bin", "HOME=" + b.work, "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=4", "GOTRACEBACK=none"}
}

// prepare makes the template of a scenario.
func (b *bench) prepare(sc *scenario) error {
	if err := os.WriteFile(filepath.Join(b.work, "handler"), []byte(handlerScript), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.work, "work"), []byte(workScript), 0o600); err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	for _, line := range append([]string{"thread init t"}, sc.before...) {
		if _, err := b.plain(line, "none"); err != nil {
			return err
		}
	}
	return os.Rename(b.dir, b.template(sc))
}

func (b *bench) template(sc *scenario) string { return filepath.Join(b.work, "template-"+sc.name) }

func (b *bench) arguments(line string) []string {
	args := strings.Fields(line)
	for i := range args {
		if args[i] = strings.ReplaceAll(args[i], "_", " "); args[i] == "HANDLER" {
			args[i] = handler
		}
	}
	args[0] = filepath.Join(b.programs, args[0])
	return args
}

// plain runs a command that is not scheduled.
func (b *bench) plain(line, dispatch string) (string, error) {
	args := b.arguments(line)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = b.dir, append(b.environment(), "THREAD_DIR="+b.dir+"/t", "THREAD_DISPATCH="+dispatch)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return string(out), nil
}

// nothingDue reports whether no event is unread.
func (b *bench) nothingDue() bool {
	t, err := engine.Open(filepath.Join(b.dir, "t"))
	if err != nil {
		return false
	}
	defer t.Close()
	due, err := t.Due(context.Background())
	return err == nil && len(due) == 0
}

// one runs a schedule and checks what it leaves.
func (b *bench) one(sc *scenario, seed uint64, faults bool) (*schedule, error) {
	s := newSchedule(b.l, b.dir, seed, faults, sc)
	err := os.RemoveAll(b.dir)
	if err == nil {
		err = os.CopyFS(b.dir, os.DirFS(b.template(sc)))
	}
	if err != nil {
		return s, err
	}
	output, err := os.Create(filepath.Join(b.dir, "output"))
	if err != nil {
		return s, err
	}
	defer output.Close()
	b.l.dir, b.l.output, b.l.env = b.dir, output.Fd(), append(b.environment(), "THREAD_DIR="+b.dir+"/t")
	s.idle = b.nothingDue
	for _, line := range sc.atOnce {
		args := b.arguments(line)
		if err := s.start(args[1], args...); err != nil {
			return s, err
		}
	}
	err = s.run()
	if err != nil {
		killChildren()
		return s, err
	}
	if s.isSlow { // a program may have found the thread busy
		s.faults++
	}
	if err = b.check(sc, s); err != nil {
		out, _ := os.ReadFile(filepath.Join(b.dir, "output"))
		log, _ := os.ReadFile(filepath.Join(b.dir, "t.log"))
		lines, _ := os.ReadFile(filepath.Join(b.dir, "t/logs/thread.log"))
		err = fmt.Errorf("%w\noutput: %s\nhandlers: %s\nthread.log: %s", err, out, log, lines)
	}
	return s, err
}

// check is the oracle.
func (b *bench) check(sc *scenario, s *schedule) error {
	for _, p := range s.processes {
		if !s.mayEnd(p, sc.refused) {
			return fmt.Errorf("%s ends with %d, signal %v", p.name, p.status.ExitStatus(), p.status.Signal())
		}
	}
	ctx := context.Background()
	t, err := engine.Open(filepath.Join(b.dir, "t"))
	if err != nil {
		return err
	}
	defer t.Close()
	if s.faults > 0 {
		if err := b.dispatch(s); err != nil {
			return err
		}
	}
	report, err := fsck.Check(ctx, t)
	if err != nil {
		return err
	}
	for _, f := range report.Faults {
		return fmt.Errorf("thread check: %v", f)
	}
	for _, after := range sc.after {
		if out, err := b.plain(after[0], "none"); s.faults == 0 && (err != nil || !regexp.MustCompile(after[1]).MatchString(out)) {
			return fmt.Errorf("%s: %w: %s", after[0], err, out)
		}
	}
	if s.faults == 0 && len(report.Notes) > 0 {
		return fmt.Errorf("thread check, without a crash: %v", report.Notes[0])
	}
	due, err := t.Due(ctx)
	if err != nil {
		return err
	}
	if len(due) > 0 && !sc.unread {
		return fmt.Errorf("consumer %s has event %d unread, and no process is left", due[0].Consumer, due[0].First)
	}
	return b.checkEvents(ctx, t, sc, s)
}

// dispatch starts the handlers after a fault, and waits until they have ended.
func (b *bench) dispatch(s *schedule) error {
	if _, err := b.plain("thread dispatch", "spawn"); err != nil {
		return err
	}
	for begun := time.Now(); s.reap(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > restTime {
			killChildren()
			return stuckError{"what a dispatch has started does not end"}
		}
	}
	return nil
}

// mayEnd reports whether a program may have ended as it has.
func (s *schedule) mayEnd(p *process, refused string) bool {
	code := p.status.ExitStatus()
	switch {
	case !p.root || p.hurt || s.isSlow || code == 0:
		return true
	case code == 1 && s.failed && strings.HasPrefix(p.name, "push"):
		return true // the process that stored its event, too, has passed the error on
	}
	return code == 1 && refused != "" && strings.HasPrefix(p.name, refused)
}

// checkEvents compares the events with the pushes, and with what the handlers have printed:
// one ran at a time, each event came, and without a crash it came once.
func (b *bench) checkEvents(ctx context.Context, t *engine.Thread, sc *scenario, s *schedule) error {
	least := 0
	for _, line := range sc.before {
		if line == push {
			least++
		}
	}
	most := least
	for _, p := range s.processes {
		if p.root && strings.HasPrefix(p.name, "push") {
			if most++; p.status.ExitStatus() == 0 {
				least++
			}
		}
	}
	if sc.pruned {
		least = 1
	}
	log, err := os.ReadFile(filepath.Join(b.dir, "t.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	seen := map[string]int{}
	for line := range strings.Lines(string(log)) {
		if !strings.HasPrefix(line, "{") {
			return errors.New(strings.TrimSpace(line))
		}
		id, _, _ := strings.Cut(line, ",")
		if seen[id]++; seen[id] > 1 && s.faults == 0 {
			return fmt.Errorf("a handler got an event twice: %s", line)
		}
	}
	events, err := t.Peek(ctx, engine.Query{})
	if err != nil {
		return err
	}
	if len(events) < least || len(events) > most {
		return fmt.Errorf("%d events are stored, not %d to %d", len(events), least, most)
	}
	for _, p := range s.processes {
		if p.hurt && p.root && strings.HasPrefix(p.name, "subscribe") {
			return nil // the subscription may be missing
		}
	}
	for _, e := range events {
		if seen[fmt.Sprintf(`{"id":%d`, e.ID)] == 0 && !sc.unread {
			return fmt.Errorf("no handler got event %d", e.ID)
		}
	}
	return nil
}
