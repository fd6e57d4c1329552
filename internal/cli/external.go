package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"

	"thread/internal/programs"
)

// become runs, in place of this program, the one that has the verb e.
func (a *App) become(e *Entry, args []string) error {
	path := programs.Find(e.Program)
	if path == "" {
		return LogicError("thread "+e.Name+" needs the program "+e.Program+", which is not installed",
			cmp.Or(e.Source, "install the package thread in place of thread-lite")+", or put "+e.Program+" beside thread")
	}
	return a.replaceBy(path, args)
}

// external returns the path of the program that adds the verb name, "" when there is
// none or name is a verb.
func (a *App) external(name string) string {
	if e, _ := a.program.lookup([]string{name}); e != nil {
		return ""
	}
	return programs.Find(programs.Prefix + name)
}

// added returns the verbs that other people's programs add.
func (p *Program) added() []string {
	return slices.DeleteFunc(programs.Added(), func(name string) bool {
		return slices.ContainsFunc(p.Entries, func(e Entry) bool { return e.Name == name || e.Program == programs.Prefix+name })
	})
}

// ProgramOutput returns what another of the programs that belong together prints on stdout.
func ProgramOutput(ctx context.Context, program string, args ...string) ([]byte, error) {
	path := programs.Find(program)
	if path == "" {
		return nil, LogicError("the program "+program+" is not installed", "install it next to thread")
	}
	return exec.CommandContext(ctx, path, args...).Output()
}

// changeDirectory takes -C DIR, which may come several times, from the front of args
// and makes DIR the working directory, as git and make do.
func changeDirectory(args []string) ([]string, error) {
	for len(args) > 0 && args[0] == "-C" {
		if len(args) == 1 || args[1] == "" {
			return nil, UsageError("-C has no directory", "name one, before the command")
		}
		if err := os.Chdir(args[1]); err != nil {
			if at := (*fs.PathError)(nil); errors.As(err, &at) {
				err = at.Err
			}
			return nil, LogicError("cannot change to "+args[1]+": "+err.Error(), "name a directory that is there")
		}
		args = args[2:]
	}
	return args, nil
}

// habit says what the word of another program's command is called here, "" when it is
// none that is known.
func habit(word string) string {
	switch word {
	case "ls", "list", "ps":
		return "thread peek lists events, thread info consumers, thread schedule list what is planned."
	case "log", "show", "cat":
		return "thread peek shows events, thread tail -f follows them, thread logs what handlers printed."
	case "status", "stat":
		return "thread info shows the consumers and what they wait for."
	case "rm", "delete", "del":
		return "thread prune drops old events, thread unsubscribe a consumer, thread dead drop dead letters."
	case "add", "enqueue", "pub":
		return "thread push stores an event."
	case "sub", "watch":
		return "thread subscribe runs a command for new events, thread tail -f shows them."
	case "get", "receive":
		return "thread next gives a consumer its next events, thread consume hands them to a command."
	case "retry", "requeue":
		return "thread dead retry sends dead letters back."
	}
	return ""
}

// ShellWord is [programs.ShellWord].
func ShellWord(s string) string { return programs.ShellWord(s) }
