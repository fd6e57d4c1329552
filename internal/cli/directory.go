package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"thread/engine"
	"thread/internal/terminal"
	"thread/jsonlog"
)

// envDir names the environment variable that stands in for --thread. Handlers
// find their own thread in it.
const envDir = "THREAD_DIR"

func (f *ThreadFlags) threadFlag() *Text { return &f.Thread }

// takesRoot is a grammar with the flag --root.
type takesRoot interface{ rootGiven() bool }

func (f *RootFlag) rootGiven() bool { return f.Root.Set }

// defaultDir fills in the --thread of cmd, if it has one.
func defaultDir(cmd Command) error {
	if with, ok := cmd.(takesRoot); ok && with.rootGiven() {
		return nil
	}
	if with, ok := cmd.(takesThread); ok {
		return UseDefaultDir(with.threadFlag())
	}
	return nil
}

// UseDefaultDir fills in a --thread that was not given: THREAD_DIR if that is
// set, else the nearest thread from the working directory upwards. A flag that
// was given always counts, also when it is wrong.
func UseDefaultDir(flag *Text) error {
	if flag.Set {
		return nil
	}
	flag.Value = os.Getenv(envDir)
	if flag.Value == "" {
		flag.Value = discover()
	}
	if flag.Value == "" {
		if here := ThreadsIn("."); len(here) > 0 {
			return UsageError("missing flag --thread", "add it: "+nameSome(here))
		}
		return UsageError("missing flag --thread", "add it, set "+envDir+", or change into a thread directory")
	}
	return nil
}

// discover returns the working directory or the nearest one above it that is a
// thread of this user, "" when there is none. The threads of other users are
// passed over, as git does: otherwise an account that can write to a directory above,
// such as /tmp, would choose where events go.
func discover() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		if IsThread(dir) && isOwn(dir) {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// IsThread reports whether dir has the file by which clients know a thread
// (T-16). Whether the file is sound is for opening it to say.
func IsThread(dir string) bool {
	st, err := os.Lstat(filepath.Join(dir, "events.db"))
	return err == nil && st.Mode().IsRegular()
}

// entriesLooked bounds how many entries of a directory are looked at for threads.
const entriesLooked = 10_000

// ThreadsIn returns the threads right below dir, sorted by name.
func ThreadsIn(dir string) (found []string) {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(entriesLooked) // at the end, or after an error, what came by then
	for _, name := range names {
		if path := filepath.Join(dir, name); IsThread(path) {
			found = append(found, path)
		}
	}
	slices.Sort(found)
	return found
}

// ThreadsBelow returns the threads right below dir, which a user gave as --root. It is an
// error if there is none.
func ThreadsBelow(dir string) ([]string, error) {
	dir, err := expandHome(dir)
	if err != nil {
		return nil, err
	}
	found := ThreadsIn(dir)
	if found == nil {
		return nil, LogicError("there is no thread directory right below "+dir, "name the directory that holds them")
	}
	return found, nil
}

// nameSome names threads for --thread, not more than fit into a line.
func nameSome(dirs []string) string {
	const most = 3
	var some []string
	for _, dir := range dirs[:min(len(dirs), most)] {
		some = append(some, "--thread "+ShellWord(dir))
	}
	switch more := len(dirs) - len(some); {
	case more > 0:
		return strings.Join(some, ", ") + fmt.Sprintf(" or one of %d others there", more)
	case len(some) > 1:
		return strings.Join(some[:len(some)-1], ", ") + " or " + some[len(some)-1]
	}
	return strings.Join(some, "")
}

func (a *App) butThreads() string {
	if len(ThreadsIn(a.Dir)) > 0 {
		return ", but a directory of threads"
	}
	return ""
}

func (a *App) threadsOr(fix string) string {
	if below := ThreadsIn(a.Dir); len(below) > 0 {
		return "name one of them: " + nameSome(below)
	}
	return fix
}

// RootFlag is embedded by verbs that ask several threads one after the other: the threads of
// --root, or of --thread more than once.
type RootFlag struct {
	Root Text `placeholder:"DIR" help:"All thread directories right below DIR, one after the other, in place of --thread, which may also be given several times."`
}

// Several reports whether more than one thread is asked.
func (f *RootFlag) Several(thread *Text) bool { return f.Root.Set || thread.before != nil }

// Each calls fn for the thread of --thread, or for each of several, whose name stands
// before what fn prints of it for people. One that fails does not keep the others from
// being asked; the error is the error of the last.
func (f *RootFlag) Each(a *App, thread *Text, json bool, fn func(dir string) error) error {
	if !f.Several(thread) {
		return fn(thread.Value)
	}
	if f.Root.Set && thread.Set {
		return UsageError("--thread and --root exclude each other", "give one of them")
	}
	dirs := thread.All()
	if f.Root.Set {
		below, err := ThreadsBelow(f.Root.Value)
		if err != nil {
			return err
		}
		dirs = below
	}
	var failed *Failure
	unknown := 0 // threads in which the consumer of the verb is not subscribed
	for i, dir := range dirs {
		if !json {
			gap := "\n"
			if i == 0 {
				gap = ""
			}
			if err := a.Out.Text(gap + "== " + terminal.Printable(dir) + "\n"); err != nil {
				return err
			}
		}
		a.Out.Thread = dir
		if abs, err := filepath.Abs(dir); err == nil && !IsURL(dir) {
			a.Out.Thread = abs
		}
		err := fn(dir)
		if errors.Is(err, engine.ErrNoSubscription) {
			unknown++
			continue
		}
		if err != nil {
			if failed != nil {
				a.Warn("%s", failed.What)
			}
			failed = a.explain(err) // now, because it names the directory
		}
	}
	a.Out.Thread = ""
	switch {
	case failed != nil:
		return failed
	case unknown == len(dirs):
		return LogicError("consumer '"+a.Consumer+"' is not subscribed in any of these threads", "see thread info with the same threads")
	}
	return nil
}

// Warn keeps a warning for the end of the run.
func (a *App) Warn(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(a.warnings, line) {
		a.warnings = append(a.warnings, line)
	}
}

// parse fills cmd, the grammar of v, from args. The error is errHelp, errVersion or a
// usage failure. Both requests win over every usage failure, as in the original.
func (a *App) parse(v *Verb, cmd Command, args []string) error {
	if quick(cmd, args) {
		if with, ok := cmd.(takesJSON); ok {
			a.Json = with.wantsJSON()
		}
		return a.filled(v, cmd, args)
	}
	k := newParser(v, cmd)
	err := fill(k, args)
	a.Json = wantsJSON(k.Model.Flags, args)
	if err == nil {
		return a.filled(v, cmd, args)
	}
	if errors.Is(err, errHelp) {
		return err
	}
	if asked := asked(k.Model, args); asked != nil {
		return asked
	}
	what, fix, found := strings.Cut(err.Error(), ", did you mean ")
	if len(k.Model.Positional) > 0 && strings.HasPrefix(what, "unknown flag -") && !strings.HasPrefix(what, "unknown flag --") {
		return UsageError(what, "put -- before an argument that begins with a hyphen")
	}
	if found && fix != `"-h"?` { // as near to two letters as anything
		return UsageError(what, "did you mean "+fix)
	}
	return UsageError(what, "see thread "+v.Name+" --help")
}

// filled checks a grammar that was filled from args, and gives it its default directory.
func (a *App) filled(v *Verb, cmd Command, args []string) error {
	if err := checkText(v, args); err != nil {
		return err
	}
	return defaultDir(cmd)
}

// LogWarning writes a warning into logs/thread.log as well as on stderr.
func (a *App) LogWarning(format string, args ...any) {
	a.Warn(format, args...)
	if !IsURL(a.Dir) {
		jsonlog.OpenLog(a.Dir).Warn(format, args...)
	}
}

// Resolve returns the absolute form of a directory given by a user: relative to
// the working directory, cleaned, without a trailing slash, ~ and a leading ~/ being
// the home directory. Symbolic links are kept, so the result names the thread as
// the user does (T-09).
func Resolve(dir string) (string, error) {
	if isAddress(dir) {
		return "", UsageError("the directory has the form of an address, and addresses have one form only",
			"give postgres://[user@]host[:port]/database?thread=NAME without a password, or put ./ before the name of a directory")
	}
	dir, err := expandHome(dir)
	if err != nil {
		return "", err
	}
	abs, err := filepath.Abs(dir)
	if errors.Is(err, os.ErrNotExist) {
		return "", LogicError("the working directory does not exist any more", "change to another, or name the directory in full")
	}
	return abs, err
}

// isAddress reports whether a text that is not a URL of [IsURL] is meant as the address of a
// database: a URL of another scheme, user:password@host, or host=HOST password=PASSWORD.
// As a directory it would be printed in every error, with its password. A path that exists,
// or that begins as one, is a path.
func isAddress(s string) bool {
	for _, prefix := range []string{"/", "./", "../", "~/", `.\`, `\`} {
		if strings.HasPrefix(s, prefix) {
			return false
		}
	}
	// regexp costs time to compile: most names are decided without.
	if !strings.ContainsAny(s, ":=@") && !strings.HasPrefix(s, "postgres") {
		return false
	}
	if !regexp.MustCompile(`(?i)^[\s"'<]*[a-z][a-z0-9+.:-]+:/|^[\s"'<]*postgres(ql)?:?/|^[\s"'<]*postgres(ql)?:|^[^/]*:[^/]*@|` +
		`(^|[\s"'?&;])(host|hostaddr|dbname|user|service|pass\w*)\s*=`).MatchString(s) {
		return false
	}
	_, err := os.Lstat(s)
	return err != nil
}

// expandHome replaces ~ and a leading ~/ by the home directory.
func expandHome(dir string) (string, error) {
	rest, ok := strings.CutPrefix(dir, "~")
	if !ok || rest != "" && rest[0] != '/' {
		return dir, nil
	}
	home := os.Getenv("HOME")
	if home == "" {
		return "", UsageError("cannot expand "+dir+": HOME is not set", "name the directory in full")
	}
	return filepath.Join(home, rest), nil
}
