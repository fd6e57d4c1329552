package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"thread/dispatch"
	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/lock"
)

// explain turns any error into words and an exit code. The packages below
// return facts; the advice is all here.
func (a *app) explain(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	var at *lineError
	if errors.As(err, &at) {
		return &failure{code: 2, what: fmt.Sprintf("line %d: %s", at.line, detail(at.err)),
			fix: "correct that line and push the batch again; nothing was stored"}
	}
	var bad *filter.Error
	if errors.As(err, &bad) {
		return explainFilter(bad)
	}
	for _, rule := range a.rules() {
		if errors.Is(err, rule.is) {
			if rule.what == "" {
				rule.what = detail(err)
			}
			return &failure{code: rule.code, what: rule.what, fix: rule.fix}
		}
	}
	place := a.dir
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		place = at.Path
	}
	return &failure{code: 1, what: err.Error(), fix: "check " + cmp.Or(place, "the system") + " and retry"}
}

// rule is one line of the table. An empty what stands for the error's own text.
type rule struct {
	is        error
	code      int
	what, fix string
}

// rules is the table, the more special errors first. It is a function because a
// table at package level would be built at every start of the program.
func (a *app) rules() []rule {
	return []rule{
		{engine.ErrSQLite, 1, a.dir + " is a SQLite thread directory", "run thread import " + a.dir},
		{engine.ErrNotDatabase, 1, a.dir + "/events.db is not a thread database", "move that file away and run thread init " + a.dir},
		{engine.ErrNotThread, 1, a.dir + " is not a thread directory", "run thread init " + a.dir},
		{engine.ErrNotDir, 1, "", "name a directory, not a file"},
		{engine.ErrTooLarge, 1, "", "drop old events with thread prune, or keep it on a 64-bit host"},
		{engine.ErrExists, 1, a.dir + " is already a thread directory", "use it with --thread " + a.dir + ", or name another path"},
		{engine.ErrNewerFormat, 1, "", "install a newer version of thread"},
		{engine.ErrByteOrder, 1, "", "export it with thread on such a host and import it here"},
		{engine.ErrUnknownOutcome, 1, "", "it may be stored or not: look with thread peek before trying again"},
		{engine.ErrBusy, 1, "thread is busy", "retry"},
		{engine.ErrCorrupt, 1, "", "run thread repair --thread " + shellWord(a.dir) + " --to <new directory>"},
		{engine.ErrNoSubscription, 1, "", "run thread subscribe, or see the consumers with thread info --thread " + a.dir},
		{engine.ErrPaused, 1, "", "run thread resume"},
		{engine.ErrSubscriptionExists, 1, "", "run thread unsubscribe first"},
		{engine.ErrIDsExhausted, 1, "", "start another thread with thread init"},
		{dispatch.ErrServed, 1, "", "stop that thread serve, or leave the thread to it"},
		{filter.ErrRuntime, 2, "", "guard the term that fails, for example json_valid(content) AND …"},
		{event.ErrInvalid, 2, "", "see thread " + a.verb + " --help"},
		{engine.ErrInvalid, 2, "", "see thread " + a.verb + " --help"},
		{errStdout, 1, "", "free space where stdout goes, or read it to the end"},
		{engine.ErrNetwork, 1, "", "keep the thread on a local file system, or set THREAD_NETWORK=allow if this host alone uses it"},
		{lock.ErrNotKept, 1, "", "keep the thread on a local file system"},
		{syscall.ENOLCK, 1, "", "keep the thread on a local file system, or start its lock service"},
		{errors.ErrUnsupported, 1, "", "keep the thread on a local file system that has file locks"},
		{syscall.EMFILE, 1, "", "raise the limit of open files with ulimit -n"},
		{syscall.ENFILE, 1, "", "the system has too many open files: close some and retry"},
		{syscall.ENOSPC, 1, "", "free space on that disk and retry"},
		{syscall.EDQUOT, 1, "", "free space within the quota and retry"},
		{syscall.EFBIG, 1, "", "raise the limit of the size of files with ulimit -f, or use a file system that has larger ones"},
		{syscall.EROFS, 1, "", "name a directory on a writable file system"},
		{syscall.ENOTDIR, 1, "", "name a directory, not a file"},
		{syscall.ENAMETOOLONG, 1, "", "name a shorter path"},
		{syscall.ELOOP, 1, "", "put the real file or directory there; links inside a thread are not followed"},
		{fs.ErrPermission, 1, "", "run as a user who may read and write that directory"},
	}
}

// explainFilter puts the place into the line itself, so that one line is enough.
func explainFilter(e *filter.Error) *failure {
	f := &failure{code: 2, fix: e.Hint,
		what: fmt.Sprintf("bad filter at line %d, column %d (offset %d): %s", e.Line, e.Column, e.Offset, e.What)}
	if f.fix == "" {
		f.fix = "see docs/FILTER.md for the language"
	}
	f.excerpt = e.Excerpt()
	return f
}

// detail returns the text of err without the name of its class, which the table
// puts into words of its own.
func detail(err error) string {
	s := err.Error()
	for _, class := range []error{event.ErrInvalid, engine.ErrInvalid} {
		s = strings.TrimPrefix(s, class.Error()+": ")
	}
	return s
}
