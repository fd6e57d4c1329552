package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"thread/internal/cli"
	"thread/internal/durable"
	"thread/internal/serve"
	"thread/lock"
)

// tokenFile is the file that thread serve --token-file reads.
type tokenFile struct {
	TokenFile cli.Text     `name:"token-file" required:"" placeholder:"FILE" help:"The file with the tokens, as thread serve --token-file reads it."`
	Help      cli.HelpFlag `short:"h" help:"Show this help."`
}

// NamesThread is for package cli.
func (tokenFile) NamesThread() string { return "" }

type tokenAddCmd struct {
	tokenFile
	Name      string   `arg:"" help:"The name of the client, for the log."`
	Right     cli.Text `required:"" placeholder:"RIGHT" help:"push, read, write or admin; push is for pushing alone."`
	Threads   []string `name:"threads" sep:"none" placeholder:"GLOB" help:"Only threads whose name or path matches, as team-*; may be given more than once."`
	Consumers []string `name:"consumers" sep:"none" placeholder:"GLOB" help:"Of consumers only those that match; may be given more than once."`
	Until     cli.Text `placeholder:"TIME" help:"The token ends then: a time, or a duration from now as 30d."`
}

type tokenListCmd struct{ tokenFile }

type tokenRevokeCmd struct {
	tokenFile
	Name string `arg:"" help:"The name of the client."`
}

var tokenAddVerb = &cli.Verb{
	Name:    "token add",
	Args:    "<name>",
	Summary: "Make a token for a client of thread serve",
	Details: `Prints the token. It is shown this once: the file has its sum only. A thread serve
that runs takes it over with SIGHUP.`,
	Exits: "0 the token is in the file\n1 the file cannot be written, or has a client of that name",
	Examples: `thread token add grafana --right read --token-file tokens
thread token add ci --right push --threads 'build-*' --until 90d --token-file tokens`,
	Grammar: func() cli.Command { return new(tokenAddCmd) },
}

var tokenListVerb = &cli.Verb{
	Name:     "token list",
	Summary:  "List the clients of thread serve, without their tokens",
	Details:  "One line per client: name, right, threads, consumers, and when the token ends.",
	Exits:    "0 listed\n1 there is no such file",
	Examples: "thread token list --token-file tokens",
	Grammar:  func() cli.Command { return new(tokenListCmd) },
}

var tokenRevokeVerb = &cli.Verb{
	Name:    "token revoke",
	Args:    "<name>",
	Summary: "Take the token of a client of thread serve away",
	Details: `A thread serve that runs takes it over with SIGHUP: browsers that logged in with the
token are logged out, streams that have begun continue.`,
	Exits:    "0 the token is gone\n1 there is no client of that name, or it is the last one",
	Examples: "thread token revoke ci --token-file tokens",
	Grammar:  func() cli.Command { return new(tokenRevokeCmd) },
}

func (c *tokenAddCmd) Run(ctx context.Context, a *cli.App) error {
	if c.Name == "" || c.Name[0] == '#' || strings.ContainsFunc(c.Name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return cli.UsageError(fmt.Sprintf("the name %q cannot be used", c.Name), "give one of visible ASCII characters without blanks, which does not begin with #")
	}
	if right := c.Right.Value; !slices.Contains([]string{"push", "read", "write", "admin"}, right) {
		return cli.UsageError(fmt.Sprintf("--right %q is not known", right), "give push, read, write or admin")
	}
	token := strings.ToLower(rand.Text() + rand.Text())
	line := []string{c.Name, c.Right.Value, serve.HashToken(token)}
	if len(c.Threads) > 0 {
		line = append(line, "threads="+strings.Join(c.Threads, ","))
	}
	if len(c.Consumers) > 0 {
		line = append(line, "consumers="+strings.Join(c.Consumers, ","))
	}
	if c.Until.Set {
		until, err := cli.ParseTime("--until", c.Until.Value, time.Now(), cli.Future)
		if err != nil {
			return err
		}
		line = append(line, "until="+until.UTC().Format(time.RFC3339))
	}
	text := strings.Join(line, " ")
	if _, err := serve.ParseClients(text); err != nil || len(strings.Fields(text)) != len(line) {
		return cli.UsageError("--threads or --consumers has no pattern", "give patterns without blanks and commas, such as 'team-*'")
	}
	err := c.change(ctx, true, func(lines []string) ([]string, error) {
		if at := lineOf(lines, c.Name); at >= 0 {
			return nil, cli.LogicError(c.Name+" has a token", "revoke it first, or give another name")
		}
		return append(lines, text+"\n"), nil
	})
	if err != nil {
		return err
	}
	return a.Out.Text(token + "\n")
}

func (c *tokenListCmd) Run(_ context.Context, a *cli.App) error {
	data, _, err := readSmall(c.TokenFile.Value)
	if err != nil {
		return cli.LogicError("--token-file: "+err.Error(), "name a file that can be read")
	}
	if strings.TrimSpace(string(data)) == "" {
		return nil
	}
	list, err := serve.ParseClients(string(data))
	if err != nil {
		return notTokens(c.TokenFile.Value, err)
	}
	for _, one := range list {
		end := "never ends"
		switch {
		case !one.Until.IsZero() && time.Now().After(one.Until):
			end = "ended " + one.Until.Format(time.RFC3339)
		case !one.Until.IsZero():
			end = "ends " + one.Until.Format(time.RFC3339)
		}
		fields := []string{one.Name, one.Rights, all(one.Threads, "threads"), all(one.Consumers, "consumers"), end}
		if err := a.Out.Text(strings.Join(fields, "\t") + "\n"); err != nil {
			return err
		}
	}
	return nil
}

// all returns patterns as a person reads them.
func all(patterns []string, of string) string {
	if len(patterns) == 0 {
		return "all " + of
	}
	return strings.Join(patterns, ",")
}

func (c *tokenRevokeCmd) Run(ctx context.Context, _ *cli.App) error {
	return c.change(ctx, false, func(lines []string) ([]string, error) {
		at := lineOf(lines, c.Name)
		if at < 0 {
			return nil, cli.LogicError("there is no client "+c.Name, "thread token list shows them")
		}
		rest := append(lines[:at:at], lines[at+1:]...)
		if list, err := serve.ParseClients(strings.Join(rest, "")); err != nil || len(list) == 0 {
			return nil, cli.LogicError(c.Name+" is the last client, and thread serve does not start without one", "add another one first, or delete the file")
		}
		return rest, nil
	})
}

// lineOf returns which line is the client's, -1 for none.
func lineOf(lines []string, name string) int {
	for i, line := range lines {
		if list, err := serve.ParseClients(line); err == nil && list[0].Name == name {
			return i
		}
	}
	return -1
}

func notTokens(file string, err error) error {
	return cli.LogicError(file+" cannot be read: "+strings.TrimPrefix(err.Error(), serve.ErrClients.Error()+": "), "correct that line, or name another file")
}

// change replaces the file with what do makes of its lines. Two at once come one after
// the other, and a reader sees the old file or the new one.
func (c *tokenFile) change(ctx context.Context, create bool, do func(lines []string) ([]string, error)) error {
	path, err := filepath.EvalSymlinks(c.TokenFile.Value)
	if errors.Is(err, fs.ErrNotExist) && create {
		path, err = c.TokenFile.Value, nil
	}
	if err != nil {
		return cli.LogicError("--token-file: "+err.Error(), "name a file that can be read")
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return cli.LogicError("--token-file: "+err.Error(), "name a file in a directory that can be read")
	}
	defer dir.Close()
	if err = lock.Wait(ctx, dir, lock.Exclusive); err != nil {
		return cli.LogicError("--token-file: "+err.Error(), "name a file in a directory that can be read")
	}
	data, mode, err := readSmall(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cli.LogicError("--token-file: "+err.Error(), "name a file that can be read")
	}
	text := string(data)
	if strings.TrimSpace(text) != "" {
		if _, err := serve.ParseClients(text); err != nil {
			return notTokens(path, err)
		}
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, line)
	}
	if lines, err = do(lines); err != nil {
		return err
	}
	if mode == 0 {
		mode = 0o600
	}
	if err := replaceFile(path, strings.Join(lines, ""), mode); err != nil {
		return cli.LogicError("--token-file: "+err.Error(), "name a file in a directory that can be written")
	}
	return nil
}

// replaceFile writes a file next to path and gives it that name when it is durable.
func replaceFile(path, text string, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	renamed := false
	if err == nil {
		renamed, err = durable.Rename(f.Name(), path, os.Rename)
	}
	if !renamed {
		_ = os.Remove(f.Name())
	}
	return err
}
