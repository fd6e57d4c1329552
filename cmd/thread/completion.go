package main

import (
	"context"
	_ "embed"
)

// The scripts are small: they hand the line to completeVerb of the program that
// stands on it and know no command themselves, so that they fit every version.
var (
	//go:embed completion/thread.bash
	bashCompletion string
	//go:embed completion/thread.fish
	fishCompletion string
	//go:embed completion/thread.zsh
	zshCompletion string
)

type completionCmd struct {
	Shell text     `arg:"" placeholder:"bash|fish|zsh" help:"The shell: bash, fish or zsh."`
	Help  helpFlag `short:"h" help:"Show this help."`
}

func completionVerb() *verb {
	return &verb{
		name: "completion", args: "<shell>",
		summary: "Print a script that completes the words of this program",
		details: `It completes commands, flags, thread directories and consumers. Packages
install it; by hand, put one of these lines where your shell reads it.`,
		examples: `. <(thread completion bash)                  # ~/.bashrc
thread completion fish | source              # ~/.config/fish/config.fish
. <(thread completion zsh)                   # ~/.zshrc, after compinit`,
		grammar: func() command { return new(completionCmd) },
	}
}

func (c *completionCmd) run(_ context.Context, a *app) error {
	switch c.Shell.value {
	case "bash":
		return a.out.text(bashCompletion)
	case "fish":
		return a.out.text(fishCompletion)
	case "zsh":
		return a.out.text(zshCompletion)
	}
	return usage("there is no completion for \""+c.Shell.value+"\"", "name bash, fish or zsh")
}
