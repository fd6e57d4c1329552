package core

import (
	"context"
	_ "embed"
	"thread/internal/cli"
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
	Shell cli.Text     `arg:"" placeholder:"bash|fish|zsh" help:"The shell: bash, fish or zsh."`
	Help  cli.HelpFlag `short:"h" help:"Show this help."`
}

var completionVerb = &cli.Verb{
	Name: "completion", Args: "<shell>",
	Summary: "Print a script that completes the words of this program",
	Details: `It completes commands, flags, thread directories and consumers. Packages
install it; by hand, put one of these lines where your shell reads it.`,
	Exits: "0 printed\n2 no such shell",
	Examples: `. <(thread completion bash)                  # ~/.bashrc
thread completion fish | source              # ~/.config/fish/config.fish
. <(thread completion zsh)                   # ~/.zshrc, after compinit`,
	Grammar: func() cli.Command { return new(completionCmd) },
}

func (c *completionCmd) Run(_ context.Context, a *cli.App) error {
	switch c.Shell.Value {
	case "bash":
		return a.Out.Text(bashCompletion)
	case "fish":
		return a.Out.Text(fishCompletion)
	case "zsh":
		return a.Out.Text(zshCompletion)
	}
	return cli.UsageError("there is no completion for \""+c.Shell.Value+"\"", "name bash, fish or zsh")
}
