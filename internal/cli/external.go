package cli

import (
	"cmp"
	"context"
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
