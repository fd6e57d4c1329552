package serve

import (
	"context"
	"slices"
	"strings"
	"sync"

	"thread/engine"
	"thread/internal/address"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/mcp"
	"thread/internal/similar"
)

type mcpCmd struct {
	cli.ThreadFlags
	cli.RootFlag
	ReadOnly bool     `help:"No tool that changes a thread."`
	Tools    cli.Text `placeholder:"NAMES" help:"Only these tools, with commas in between."`
	Source   cli.Text `placeholder:"SOURCE" help:"The source of the events that the agent pushes (default agent: and the name of the client)."`
}

var mcpVerb = &cli.Verb{
	Name:    "mcp",
	Summary: "Give an agent tools for threads, over stdio",
	Details: `Speaks the Model Context Protocol on stdin and stdout, for the program that hosts an
agent, which starts it: tools to read, push, ask, wait, take and settle events, and to
record messages and runs, for the threads of --thread or --root and no others. It ends
with its client.`,
	Exits: "0 the client is gone\n1 a thread cannot be read",
	Examples: `thread mcp --thread ./inbox
thread mcp --root ~/threads --read-only
thread mcp --thread ./inbox --tools peek,wait,push --source agent:reviewer`,
	Grammar: func() cli.Command { return new(mcpCmd) },
	Errors:  errorWords,
}

func (c *mcpCmd) Run(_ context.Context, a *cli.App) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	h := &mcpHost{c: c, a: a, threads: map[string]*engine.Thread{}}
	defer h.close()
	// What is wrong with a thread is said before a client is there.
	if err := c.Each(a, &c.Thread, true, func(dir string) error {
		t, err := a.OpenEvents(dir)
		if err != nil {
			return err
		}
		return t.Close()
	}); err != nil {
		return err
	}
	ctx, stop := cli.Interruptible(context.Background())
	defer stop()
	return mcp.Run(ctx, h, o)
}

func (c *mcpCmd) options() (mcp.Options, error) {
	o := mcp.Options{Version: cli.Version(), ReadOnly: c.ReadOnly, Source: c.Source.Value}
	if c.Source.Set && c.Source.Value == "" {
		return o, cli.UsageError("--source is empty", "give a name, or leave it out")
	}
	if !c.Tools.Set {
		return o, nil
	}
	known := mcp.Names(o)
	for name := range strings.SplitSeq(c.Tools.Value, ",") {
		if !slices.Contains(known, name) {
			return o, cli.UsageError("--tools: "+similar.Unknown("tool", name, known), "see docs/reference/mcp.md")
		}
		o.Tools = append(o.Tools, name)
	}
	return o, nil
}

// mcpHost has the threads of the flags. Tools are called side by side.
type mcpHost struct {
	c *mcpCmd
	a *cli.App

	mu      sync.Mutex
	dirs    map[string]string
	threads map[string]*engine.Thread // by directory
}

func (h *mcpHost) close() {
	for _, t := range h.threads {
		_ = t.Close() // what was stored is stored
	}
}

// Names are the last elements of the directories and the names in URLs, or of two with the same
// the addresses.
func (h *mcpHost) Names() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var dirs []string
	bases := map[string]int{}
	_ = h.c.Each(h.a, &h.c.Thread, true, func(dir string) error { // a root without threads has none
		path, err := dir, error(nil)
		if !cli.IsURL(dir) {
			path, err = cli.Resolve(dir)
		}
		if err == nil {
			dirs = append(dirs, path)
			bases[address.Base(path)]++
		}
		return nil
	})
	h.dirs = map[string]string{}
	for _, dir := range dirs {
		name := address.Base(dir)
		if bases[name] > 1 {
			name = dir
		}
		h.dirs[name] = dir
		names = append(names, name)
	}
	return names
}

// Thread returns one of Names.
func (h *mcpHost) Thread(name string) (t *engine.Thread, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	dir := h.dirs[name]
	if t = h.threads[dir]; t != nil {
		return t, nil
	}
	// Any look may be the one that finds a scheduled event due.
	t, err = h.a.OpenAddress(dir, engine.WithOnRelease(func(source string) {
		if err := cli.Wake(context.Background(), t, source); err != nil {
			cli.LogWarningOf(dir, "mcp: a scheduled event is stored, but no handler was started: %v", err)
		}
	}))
	if err != nil {
		return t, err
	}
	h.threads[dir] = t
	return t, nil
}

// Pushed starts handlers.
func (h *mcpHost) Pushed(t *engine.Thread, b engine.Batch) {
	if err := cli.WakeAfterPush(context.Background(), t, b); err != nil {
		cli.LogWarningOf(t.Address(), "mcp: the event is stored, but no handler was started: %v", err)
	}
	if b.Subscribed && dispatch.StartsNobody() {
		_ = dispatch.Retain(context.Background(), t) // the next push tries again
	}
}

// Explain puts an error into the words of the command line.
func (h *mcpHost) Explain(t *engine.Thread, consumer string, err error) string {
	dir := ""
	if t != nil {
		dir = t.Address()
	}
	return h.a.Explain(dir, consumer, err)
}
