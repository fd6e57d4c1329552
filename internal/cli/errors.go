package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/internal/dispatch"
	"thread/internal/store"
	"thread/internal/target"
	"thread/internal/terminal"
	"thread/lock"
)

// Explain is an error in these words, about a thread and a consumer, "" for none.
func (a *App) Explain(dir, consumer string, err error) string {
	about := App{program: a.program, verb: a.verb, Dir: dir, Consumer: consumer}
	return about.explain(err).Error()
}

// explain turns any error into words and an exit code. The packages below
// return facts; the advice is all here.
func (a *App) explain(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	var of interface {
		error
		HistoryDir() string
	}
	if errors.As(err, &of) && of.HistoryDir() != a.Dir {
		about := App{program: a.program, verb: a.verb, Dir: of.HistoryDir()}
		return about.explain(err)
	}
	var at *LineError
	if errors.As(err, &at) {
		return &Failure{Code: 2, What: fmt.Sprintf("line %d: %s", at.Line, detail(at.Err)),
			Fix: "correct that line and push the batch again; nothing was stored"}
	}
	var bad *filter.Error
	if errors.As(err, &bad) {
		return explainFilter(bad)
	}
	var foreign *dispatch.OwnerError
	if errors.As(err, &foreign) {
		return a.aboutOwner(foreign)
	}
	var leased *engine.LeasedError
	if errors.As(err, &leased) {
		return &Failure{Code: 1, What: fmt.Sprintf("events of consumer '%s' are in flight with delivery %d until %s", leased.Consumer, leased.Number, event.FormatTime(leased.Until)),
			Fix: fmt.Sprintf("wait until then, or take other events with a separate consumer; the process that took the delivery settles it with thread ack --thread %s --consumer %s --delivery %d", ShellWord(a.Dir), ShellWord(leased.Consumer), leased.Number)}
	}
	var held *engine.HeldBackError
	if errors.As(err, &held) {
		return explainHeldBack(held)
	}
	if errors.Is(err, engine.ErrNoSubscription) && a.Consumer != "" {
		return a.explainUnsubscribed() // looks up who is subscribed, which is not for a table
	}
	if errors.Is(err, dispatch.ErrHandled) && a.Consumer != "" {
		return a.explainHandled()
	}
	for _, rule := range a.errorWords() {
		if errors.Is(err, rule.Is) {
			if rule.What == "" {
				rule.What = detail(err)
			}
			return &Failure{Code: rule.Code, What: rule.What, Fix: rule.Fix}
		}
	}
	place := a.Dir
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		place = at.Path
	}
	return &Failure{Code: 1, What: err.Error(), Fix: "check " + cmp.Or(place, "the system") + " and retry"}
}

// LineError says which line of a batch is wrong.
type LineError struct {
	Line int // from 1, blank lines counted
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *LineError) Unwrap() error { return e.Err }

// isEmpty reports whether the directory's events.db is empty, as FAT can leave it when
// the power fails during init.
func (a *App) isEmpty() bool {
	info, err := os.Stat(filepath.Join(a.Dir, "events.db"))
	return err == nil && info.Size() == 0
}

func (a *App) butEmpty() string {
	if a.isEmpty() {
		return ", but its events.db is empty"
	}
	return ""
}

func (a *App) emptyOr(fix string) string {
	if a.isEmpty() {
		return a.refill()
	}
	return fix
}

// refill says what helps with an empty events.db: its lines, if there are any.
func (a *App) refill() string {
	entries, _ := os.ReadDir(a.Dir)
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, "events") || !strings.HasSuffix(name, ".jsonl") {
			continue
		}
		if info, err := e.Info(); err == nil && info.Size() > 0 {
			return "run thread repair --thread " + ShellWord(a.Dir) + " --to <new directory>"
		}
	}
	return a.startAgain()
}

func (a *App) startAgain() string {
	return "run rm " + ShellWord(filepath.Join(a.Dir, "events.db")) + " && thread init " + ShellWord(a.Dir)
}

// errorWords is the table, the more special errors first. It is a function because a
// table at package level would be built at every start of the program.
func (a *App) errorWords() []Rule {
	var rules []Rule
	verb := ""
	if a.verb != nil {
		verb = a.verb.Name
		if a.verb.Errors != nil {
			rules = a.verb.Errors(a)
		}
	}
	if of := target.HistoryOf(a.Dir); of != "" && verb != "repair" {
		rules = append(a.historyWords(of), rules...)
	}
	if servers != nil && IsURL(a.Dir) {
		rules = append(rules, servers.Errors(a)...)
	}
	if a.Consumer != "" {
		rules = append(rules, a.consumerWords()...)
	}
	if verb == "repair" {
		rules = append(rules, Rule{engine.ErrExists, 1, a.Target + " is already a thread directory", "name a new directory with --to"})
	}
	return append(rules, []Rule{
		{engine.ErrSQLite, 1, a.Dir + " is a SQLite thread directory", "run thread import " + ShellWord(a.Dir) + " --to <new directory>"},
		{engine.ErrEmpty, 1, a.Dir + "/events.db is not a thread database, it is empty", a.refill()},
		{store.ErrOldFormat, 1, a.Dir + "/events.db was written before the first release", "export it to SQLite with the program that wrote it, and import that with this one"},
		{engine.ErrNotDatabase, 1, a.Dir + "/events.db is not a thread database", "move that file away and run thread init " + ShellWord(a.Dir)},
		{engine.ErrNotThread, 1, a.Dir + " is not a thread directory" + a.butThreads(), a.threadsOr("run thread init " + ShellWord(a.Dir))},
		{engine.ErrNotDir, 1, "", "name a directory, not a file"},
		{target.ErrInThread, 1, "", "name a path outside of thread directories"},
		{engine.ErrOwner, 1, "", "run it as that account, or as root"},
		{engine.ErrTooLarge, 1, "", "drop old events with thread prune, or keep it on a 64-bit host"},
		{engine.ErrExists, 1, a.Dir + " is already a thread directory" + a.butEmpty(), a.emptyOr("use it with --thread " + ShellWord(a.Dir) + ", or name another path")},
		{engine.ErrNewerFormat, 1, "", "install a newer version of thread"},
		{engine.ErrByteOrder, 1, "", "export it with thread on a host with that byte order, and import it here"},
		{engine.ErrUnknownOutcome, 1, "", "it may or may not be stored: check with thread peek before retrying"},
		{engine.ErrBusy, 1, "thread is busy", "retry"},
		{store.ErrNothingSaved, 1, "", a.emptyOr("restore a copy of the directory, or start another thread with thread init")},
		{engine.ErrCorrupt, 1, "", "run thread repair --thread " + ShellWord(a.Dir) + " --to <new directory>"},
		{engine.ErrNoSubscription, 1, "", "run thread subscribe, or see the consumers with thread info --thread " + ShellWord(a.Dir)},
		{engine.ErrPaused, 1, "", "run thread resume"},
		{engine.ErrSubscriptionExists, 1, "", "name another consumer, or run thread unsubscribe first"},
		{engine.ErrScheduleExists, 1, "schedule '" + a.Schedule + "' already exists", "run thread schedule remove --thread " + ShellWord(a.Dir) + " --name " + ShellWord(a.Schedule)},
		{engine.ErrNoSchedule, 1, "there is no schedule '" + a.Schedule + "'", "see thread schedule list --thread " + ShellWord(a.Dir)},
		{engine.ErrIDsExhausted, 1, "", "start another thread with thread init"},
		{dispatch.ErrServed, 1, "", "stop that thread serve, or leave the thread to it"},
		{filter.ErrRuntime, 2, "", "guard the term that fails, for example json_valid(content) AND …"},
		{event.ErrNotText, 2, "", "give text in UTF-8, and encode binary content, for example with base64"},
		{event.ErrInvalid, 2, "", "see thread " + verb + " --help"},
		{engine.ErrInvalid, 2, "", "see thread " + verb + " --help"},
		{terminal.ErrStdout, 1, "", "free space where stdout goes, or read it to the end"},
		{dispatch.ErrNoProgram, 1, "", "install it next to this program, or put it on PATH"},
		{engine.ErrNetwork, 1, "", "keep the thread on a local file system, or set THREAD_NETWORK=allow if this host alone uses it"},
		{lock.ErrNotKept, 1, "", "keep the thread on a local file system"},
		{syscall.ENOLCK, 1, "", "keep the thread on a local file system, or start its lock service"},
		{errors.ErrUnsupported, 1, "", "keep the thread on a local file system that has file locks"},
		{syscall.EMFILE, 1, "", "raise the limit of open files with ulimit -n"},
		{syscall.ENFILE, 1, "", "the system has too many open files: close some and retry"},
		{syscall.ENOSPC, 1, "", "free space on that disk and retry; thread retain bounds what a thread keeps"},
		{syscall.EDQUOT, 1, "", "free space within the quota and retry"},
		{syscall.EFBIG, 1, "", "raise the limit of file sizes with ulimit -f, or use a file system with larger files"},
		{syscall.EROFS, 1, "", "name a directory on a writable file system"},
		{syscall.ENOTDIR, 1, "", "name a directory, not a file"},
		{syscall.ENAMETOOLONG, 1, "", "name a shorter path"},
		{syscall.ELOOP, 1, "", "put the real file or directory there; links inside a thread are not followed"},
		{fs.ErrPermission, 1, "", "run as a user who may read and write that directory"},
	}...)
}

// explainFilter puts the place into the line itself, so that one line is enough.
func explainFilter(e *filter.Error) *Failure {
	f := &Failure{Code: 2, Fix: e.Hint,
		What: fmt.Sprintf("invalid filter at line %d, column %d (offset %d): %s", e.Line, e.Column, e.Offset, e.What)}
	if f.Fix == "" {
		f.Fix = "see docs/reference/filter.md for the language"
	}
	f.Excerpt = e.Excerpt()
	return f
}

// detail returns the text of err without the name of its class, which the table
// puts into separate words.
func detail(err error) string {
	s := err.Error()
	for _, class := range []error{event.ErrInvalid, engine.ErrInvalid} {
		s = strings.TrimPrefix(s, class.Error()+": ")
	}
	return s
}
