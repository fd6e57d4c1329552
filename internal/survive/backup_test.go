package survive

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"thread/engine"
	"thread/internal/backup"
)

// keeping is a command that writes backups of the thread t into b, or the thread r
// of them, all in one directory.
type keeping struct {
	name    string
	args    []string
	prepare func(t *testing.T, dir string)
	judge   func(k *backupsLeft, r result) error
}

// backupsLeft is what there may be.
type backupsLeft struct {
	dir      string
	old, new threadAndHistory // as the first backup has it, and the thread
	restored bool
}

func keepings() []keeping {
	in := func(sub string) string { return "B/" + sub }
	return []keeping{
		{name: "backup", args: []string{"backup", "--thread", in("t"), in("b"), "--keep", "1"}, prepare: backedUp, judge: (*backupsLeft).backups},
		{name: "restore", args: []string{"restore", in("b"), "--to", in("r"), "--deliver"}, prepare: backedUpTwice, judge: (*backupsLeft).restores},
		{name: "first backup", args: []string{"backup", "--thread", in("t"), in("b/below")}, prepare: backedUp, judge: (*backupsLeft).backups},
		{name: "backup after a compaction", args: []string{"backup", "--thread", in("t"), in("b"), "--keep", "1"},
			prepare: func(t *testing.T, dir string) {
				backedUp(t, dir)
				thread(t, "", "compact", "--thread", dir+"/t")
			}, judge: (*backupsLeft).backups},
		{name: "restore into an empty directory", args: []string{"restore", in("b"), "--to", in("r"), "--deliver"},
			prepare: func(t *testing.T, dir string) {
				backedUpTwice(t, dir)
				if err := os.Mkdir(dir+"/r", 0o700); err != nil {
					t.Fatal(err)
				}
			}, judge: (*backupsLeft).restores},
	}
}

// backedUp makes a thread with a history, a backup of it, and changes both.
func backedUp(t *testing.T, dir string) {
	half(t, dir+"/t")
	thread(t, "", "session", "start", "--thread", dir+"/t", "--id", "one")
	thread(t, "", "backup", "--thread", dir+"/t", dir+"/b")
	thread(t, batch(40, "since"), "push", "--thread", dir+"/t", "--batch")
	thread(t, "", "ack", "--thread", dir+"/t", "--consumer", "c", "--event-id", "2010")
	thread(t, "", "unsubscribe", "--thread", dir+"/t", "--consumer", "d")
	thread(t, "", "run", "start", "--thread", dir+"/t", "--session", "one", "--id", "two")
}

func backedUpTwice(t *testing.T, dir string) {
	backedUp(t, dir)
	thread(t, "", "backup", "--thread", dir+"/t", dir+"/b")
}

// threadAndHistory is all that there is of a thread.
type threadAndHistory struct {
	content
	digests string
}

func readBoth(dir string) (b threadAndHistory, err error) {
	if b.content, err = read(dir); err != nil {
		return b, err
	}
	for _, sub := range []string{"", "history"} {
		th, err := engine.Open(filepath.Join(dir, sub))
		if err != nil {
			return b, err
		}
		sum, err := th.Digest(ctx)
		th.Close()
		if err != nil {
			return b, err
		}
		b.digests += hex.EncodeToString(sum[:])
		if err := faultless(filepath.Join(dir, sub)); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (b threadAndHistory) same(c threadAndHistory) bool {
	return b.content.same(c.content) && b.digests == c.digests
}

// start makes the directory, and says what there may be.
func (op *keeping) start(t *testing.T) (*started, *backupsLeft) {
	t.Helper()
	s := &started{operation: operation{name: op.name, atMost: 1}, template: filepath.Join(t.TempDir(), "template"), dir: filepath.Join(t.TempDir(), "base")}
	for _, arg := range op.args {
		if strings.HasPrefix(arg, "B/") {
			arg = s.dir + arg[1:]
		}
		s.args = append(s.args, arg)
	}
	op.prepare(t, s.template)
	k := &backupsLeft{dir: s.dir}
	var err, err2 error
	k.old, err = readBoth(s.template + "/b/000001")
	k.new, err2 = readBoth(s.template + "/t")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return s, k
}

// renewBackup is renew, and the backups are of those files, unless the thread's have
// changed since.
func (s *started) renewBackup(t *testing.T) {
	t.Helper()
	s.renew(t)
	for _, sub := range []string{"", "history"} {
		var ids [2]string
		for i, dir := range []string{s.template, s.dir} {
			f, err := os.Open(filepath.Join(dir, "t", sub, "events.db"))
			if err != nil {
				t.Fatal(err)
			}
			ids[i], err = backup.Identity(f)
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
		}
		moment := filepath.Join(s.dir, "b/000001", sub, "copied.json")
		text, err := os.ReadFile(moment)
		if err == nil {
			err = os.WriteFile(moment, bytes.ReplaceAll(text, []byte(ids[0]), []byte(ids[1])), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestCrashBackup kills the program at every system call of a backup and a restore, and
// TestFailureBackup lets every one fail. What has the name of a backup, or of the new
// thread, is whole, the thread is as it was, and the command can be run again.
func TestCrashBackup(t *testing.T)   { backupMatrix(t, (*calls).killPoints, 0) }
func TestFailureBackup(t *testing.T) { backupMatrix(t, (*calls).failurePoints, 1) }

func backupMatrix(t *testing.T, points func(c *calls, atMost int) []point, quick int) {
	needStrace(t)
	for i, op := range keepings() {
		if i != quick && !full && (!sample || i >= 2) {
			continue // the others are to stay quick
		}
		t.Run(strings.ReplaceAll(op.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s, k := op.start(t)
			s.renewBackup(t)
			if r := run(t, "", program, s.args...); r.code != 0 || strings.Contains(r.stdout, ", of which 40 are since") != (op.name == "backup") {
				t.Fatal(r)
			}
			s.renewBackup(t)
			c := record(t, s.dir, "", s.args...)
			list := points(&c, s.density())
			if len(list) == 0 {
				t.Error("nothing was tried")
			}
			n := 0
			for _, p := range list {
				s.renewBackup(t)
				r, _ := p.inject(t, "", s.args...)
				if strings.Contains(r.stderr, "netpollBreak") || strings.Contains(r.stderr, "checking standard file descriptor") {
					continue
				}
				if p.call == "write" && r.code == 1 && r.stderr == "" {
					r.stderr = metTheError
				}
				err := op.judge(k, r)
				if err == nil {
					err = k.again(t, s.args)
				}
				if err != nil {
					t.Errorf("%v: %v: %v", p, r, err)
					if n++; n == 5 {
						t.Fatal("enough")
					}
				}
			}
		})
	}
}

// TestPowerBackup cuts the power at every call of a backup and a restore, as
// TestPowerLoss does.
func TestPowerBackup(t *testing.T) {
	needStrace(t)
	if !full && !sample {
		t.Skip("run make crash")
	}
	for _, op := range keepings() {
		t.Run(strings.ReplaceAll(op.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s, k := op.start(t)
			s.renewBackup(t)
			list := steps(t, s.dir, "", s.args...)
			d := load(t, s.template).moved(s.template, s.dir)
			dir := filepath.Join(filepath.Dir(s.dir), "cut")
			k.dir = dir
			for cut := range len(list) + 1 {
				at, end := "the exit", result{code: 0}
				if cut < len(list) {
					at, end = fmt.Sprintf("call %d of %d, %s", cut, len(list), list[cut].call), result{code: -1}
				}
				for n := range 3 {
					if !full && cut%(max(len(list)/8, 1)) != 0 && cut < len(list)-8 {
						break
					}
					share := []float64{0, 1, 0.5}[n]
					r := rand.New(rand.NewPCG(uint64(cut), uint64(n)))
					d.cutOff(t, s.dir, dir, r, func() bool { return r.Float64() < share })
					if err := op.judge(k, end); err != nil {
						t.Fatalf("power lost before %s, state %d: %v", at, n, err)
					}
				}
				if cut < len(list) {
					list[cut].do(d)
				}
			}
		})
	}
}

var backupNames = regexp.MustCompile(`^([0-9]{6}|backup\.lock|below)$`)

// backups judges what a backup has left.
func (k *backupsLeft) backups(r result) error {
	if r.code > 1 {
		return fmt.Errorf("exit code %d", r.code)
	}
	if is, err := readBoth(k.dir + "/t"); err != nil || !is.same(k.new) {
		return fmt.Errorf("the thread is %v, %w", is, err)
	}
	olds, news := 0, 0
	for _, dir := range []string{k.dir + "/b", k.dir + "/b/below"} {
		list, err := backup.List(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, b := range list {
			switch is, err := readBoth(b); {
			case err != nil:
				return fmt.Errorf("%s: %w", b, err)
			case is.same(k.old):
				olds++
			case is.same(k.new):
				news++
			default:
				return fmt.Errorf("%s is no moment of the thread: %v", b, is)
			}
		}
	}
	switch {
	case olds+news == 0:
		return errors.New("no backup is left")
	case r.code == 0 && news == 0:
		return errors.New("exit 0, and no backup")
	case r.code == 1 && oneError(r.stderr) != nil:
		return oneError(r.stderr)
	case r.code == 1 && news > 0 && !strings.Contains(r.stderr, "is written") && !mayBeDone(r):
		return errors.New("exit 1, but it was done")
	}
	return nil
}

// restores judges what a restore has left.
func (k *backupsLeft) restores(r result) error {
	if r.code > 1 {
		return fmt.Errorf("exit code %d", r.code)
	}
	k.restored = engine.Exists(k.dir + "/r")
	if !k.restored {
		if left, err := os.ReadDir(k.dir + "/r"); len(left) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("half of a thread: %v, %w", left, err)
		}
	} else if is, err := readBoth(k.dir + "/r"); err != nil || !is.same(k.new) {
		return fmt.Errorf("the new thread is %v, %w", is, err)
	}
	switch {
	case r.code == 0 && !k.restored:
		return errors.New("exit 0, and nothing is restored")
	case r.code == 1 && oneError(r.stderr) != nil:
		return oneError(r.stderr)
	case r.code == 1 && k.restored && !mayBeDone(r):
		return errors.New("exit 1, but it was done")
	}
	return k.backups(result{code: -1}) // they are as they were
}

// again runs the command once more, without a fault.
func (k *backupsLeft) again(t *testing.T, args []string) error {
	if args[0] == "restore" {
		want := 0
		if k.restored {
			want = 1 // nothing is replaced
		}
		if r := run(t, "", program, args...); r.code != want {
			return fmt.Errorf("run again: %v", r)
		}
		return k.restores(result{code: 0})
	}
	r := run(t, "", program, args...)
	if r.code != 0 {
		return fmt.Errorf("it cannot be run again: %v", r)
	}
	if err := k.backups(r); err != nil {
		return err
	}
	for _, dir := range []string{k.dir + "/b", k.dir + "/b/below"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if !backupNames.MatchString(e.Name()) && dir == filepath.Dir(args[3]+"/x") {
				return fmt.Errorf("it leaves %s", e.Name())
			}
		}
	}
	return nil
}
