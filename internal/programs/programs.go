// Package programs finds the programs that belong together: thread, and those
// that add verbs to it, as thread-sqlite does. It makes no promise to library
// users.
package programs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// Main is the program that users call, and that runs the others.
	Main = "thread"

	// Prefix begins the names of the programs that add verbs: thread NAME runs
	// thread-NAME when NAME is not a verb.
	Prefix = "thread-"

	// History is the program that keeps what is recorded of runs.
	History = Prefix + "history"

	// Outbox is the program with the verbs of the outbox.
	Outbox = Prefix + "outbox"

	// Serve is the program that stays, and has the verbs that talk to it.
	Serve = Prefix + "serve"

	// Net is the program that knows threads on a server.
	Net = Prefix + "net"
)

// current is the name that this process was given by Is, "" when it is none of them
// and uses the library.
var current string

// Is says which of the programs this process is. The first thing that their main
// functions do is to call it.
func Is(name string) {
	current = name
	if _, err := os.Executable(); err != nil {
		started, _ = startedAs(os.Args[0]) // before anybody changes the directory
	}
}

// started is the path of this process's program where the system does not tell it: on
// Linux that takes a /proc, which a small board's root may not have.
var started string

// executable returns the path of the program that this process runs.
func executable() (string, error) {
	exe, err := os.Executable()
	if err != nil && started != "" {
		return started, nil
	}
	return exe, err
}

// startedAs returns the path of the program that was started by that name: a path, or
// what PATH finds, except in its relative entries.
func startedAs(name string) (string, error) {
	if name == "" {
		return "", os.ErrNotExist
	}
	if filepath.Base(name) != name {
		return filepath.Abs(name)
	}
	for _, dir := range pathDirs() {
		if path := filepath.Join(dir, name); isProgram(path) {
			return path, nil
		}
	}
	return "", os.ErrNotExist
}

// Thread returns the path of the program Main: of the file that this process runs,
// or if that is another of the programs, of the one that Find finds. It returns
// "" when there is none.
func Thread() string {
	if current != Main {
		return Find(Main)
	}
	exe, err := executable()
	if err != nil {
		return ""
	}
	return exe
}

// Find returns the path of the program with that name, "" when there is none.
func Find(name string) string {
	if name != filepath.Base(name) {
		return ""
	}
	for _, dir := range dirs() {
		if path := filepath.Join(dir, name); isProgram(path) {
			return path
		}
	}
	return ""
}

// Added returns the NAMEs of the programs called thread-NAME that Find finds,
// sorted.
func Added() []string {
	var names []string
	for _, dir := range dirs() {
		entries, _ := os.ReadDir(dir) // one that cannot be read has none
		for _, e := range entries {
			name, ok := strings.CutPrefix(e.Name(), Prefix)
			if !ok || name == "" || !isProgram(filepath.Join(dir, e.Name())) {
				continue
			}
			names = append(names, strings.TrimSuffix(name, ".exe"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// dirs returns where programs are looked for, in this order: next to this one, links
// resolved; in libexec/thread next to that directory, and from there in bin; on PATH,
// except its relative entries, which would run what lies in the working directory.
func dirs() []string {
	var dirs []string
	if exe, err := executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		here := filepath.Dir(exe)
		dirs = append(dirs, here, filepath.Join(here, "..", "libexec", Main))
		if filepath.Base(here) == Main && filepath.Base(filepath.Dir(here)) == "libexec" {
			dirs = append(dirs, filepath.Join(here, "..", "..", "bin"))
		}
	}
	return append(dirs, pathDirs()...)
}

// pathDirs returns the absolute entries of PATH.
func pathDirs() (dirs []string) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// isProgram reports whether path is a file that can be run.
func isProgram(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}
