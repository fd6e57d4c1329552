package serve

import (
	"context"
	"path/filepath"
	"sync"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/mcp"
)

type mcpCmd struct {
	cli.ThreadFlags
	cli.RootFlag
	ReadOnly bool `help:"No tool that changes a thread."`
}

func mcpVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "mcp",
		Summary: "Give an agent tools for threads, over stdio",
		Details: `Speaks the Model Context Protocol on stdin and stdout, for the program that hosts an
agent, which starts it: tools push, peek, wait, why, consume and ack, for the threads of
--thread or --root and no others. It ends with its client.`,
		Exits: "0 the client is gone\n1 a thread cannot be read",
		Examples: `thread mcp --thread ./inbox
thread mcp --root ~/threads --read-only`,
		Grammar:     func() cli.Command { return new(mcpCmd) },
		Errors:      errorWords,
		Directories: "run it where the thread is a directory",
	}
}

func (c *mcpCmd) Run(_ context.Context, a *cli.App) error {
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
	return mcp.Run(ctx, h, mcp.Options{Version: cli.Version(), ReadOnly: c.ReadOnly})
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

// Names are the last elements of the directories, or of two with the same the paths.
func (h *mcpHost) Names() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var dirs []string
	bases := map[string]int{}
	_ = h.c.Each(h.a, &h.c.Thread, true, func(dir string) error { // a root without threads has none
		if path, err := cli.Resolve(dir); err == nil {
			dirs = append(dirs, path)
			bases[filepath.Base(path)]++
		}
		return nil
	})
	h.dirs = map[string]string{}
	for _, dir := range dirs {
		name := filepath.Base(dir)
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
	t, err = engine.Open(dir, engine.WithOnRelease(func(source string) {
		if err := cli.Wake(context.Background(), t, source); err != nil {
			cli.LogWarningOf(dir, "mcp: a scheduled event is stored, but no handler was started: %v", err)
		}
	}))
	if err == nil {
		h.threads[dir] = t
	}
	return t, err
}

// Pushed starts handlers.
func (h *mcpHost) Pushed(t *engine.Thread, b engine.Batch) {
	if err := cli.WakeAfterPush(context.Background(), t, b); err != nil {
		cli.LogWarningOf(t.Dir(), "mcp: the event is stored, but no handler was started: %v", err)
	}
	if b.Subscribed && dispatch.StartsNobody() {
		_ = dispatch.Retain(context.Background(), t) // the next push tries again
	}
}

// Explain puts an error into the words of the command line.
func (h *mcpHost) Explain(t *engine.Thread, consumer string, err error) string {
	dir := ""
	if t != nil {
		dir = t.Dir()
	}
	return h.a.Explain(dir, consumer, err)
}
