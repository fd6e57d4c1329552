package serve

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/internal/cli"
	"thread/internal/programs"
	"thread/internal/terminal"
)

type benchCmd struct {
	Path   cli.Text `arg:"" help:"A directory on the disk that matters; the thread that is measured is made in it, and removed."`
	Rounds cli.Text `placeholder:"N" help:"How often each is done, 1 to 10000 (default 50)."`
	cli.JSONFlag
	Help cli.HelpFlag `short:"h" help:"Show this help."`
}

var benchVerb = &cli.Verb{
	Name: "bench", Args: "<directory>",
	Summary: "Measure push, pop and wake-up on a disk",
	Details: `Runs the program itself in a new thread in the directory, and prints of each
operation the 10th percentile, the median and the 99th percentile: sync is an
append of 4 KiB with fsync, push one durable event, batch 10,000 events of 200
bytes in one push, pop 100 of them, wake-up the time from the start of a push to
the first command of its handler.`,
	Exits: "0 measured\n1 the directory cannot be written",
	Examples: `thread bench /mnt/sdcard
thread bench . --rounds 200 --json`,
	Grammar: func() cli.Command { return new(benchCmd) },
}

const (
	benchBatch    = 10_000                 // events of a batch
	benchBatches  = 3                      // rounds of it
	benchPage     = 100                    // events of a pop
	benchPause    = 100 * time.Millisecond // before a wake-up, for what the one before has started to end
	benchPatience = 30 * time.Second       // for a handler
)

// bench measures in one directory.
type bench struct {
	ctx     context.Context
	a       *cli.App
	json    bool
	rounds  int
	program string // thread
	dir     string // of the thread
}

func (c *benchCmd) Run(ctx context.Context, a *cli.App) (err error) {
	b := &bench{ctx: ctx, a: a, json: c.JSON, rounds: 50}
	if c.Rounds.Set {
		if b.rounds, err = strconv.Atoi(c.Rounds.Value); err != nil || b.rounds < 1 || b.rounds > 10_000 {
			return cli.UsageError("--rounds is not a number from 1 to 10000", "give for example --rounds 100")
		}
	}
	if b.program = programs.Thread(); b.program == "" {
		return cli.LogicError("there is no program thread", "put it next to thread-serve, or on PATH")
	}
	parent, err := cli.Resolve(c.Path.Value)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(parent, ".thread-bench-")
	if err != nil {
		return cli.LogicError("cannot make a directory in "+terminal.Printable(parent)+": "+err.Error(), "give a directory that exists and that you may write")
	}
	ctx, cancel := cli.Interruptible(ctx)
	defer cancel()
	b.ctx, b.dir = ctx, filepath.Join(work, "thread")
	defer func() { err = errors.Join(err, removeAll(work)) }()
	return b.run(work)
}

func (b *bench) run(work string) error {
	sync, err := b.repeat("sync", b.rounds, 1, appendTo(filepath.Join(work, "sync")))
	if err != nil {
		return err
	}
	if _, err := b.thread(nil, "init", b.dir); err != nil {
		return err
	}
	push, err := b.repeat("push", b.rounds, 1, func() (time.Duration, error) {
		return b.thread(nil, "push", "--thread", b.dir, "--source", "bench", "--type", "t", "--content", "hello", "--quiet")
	})
	if err != nil {
		return err
	}
	line := `{"source":"bench","type":"t","content":"` + strings.Repeat("x", 200) + "\"}\n"
	lines := []byte(strings.Repeat(line, benchBatch))
	if _, err := b.repeat("batch", min(b.rounds, benchBatches), benchBatch, func() (time.Duration, error) {
		return b.thread(lines, "push", "--thread", b.dir, "--batch", "--quiet")
	}); err != nil {
		return err
	}
	if err := b.pop(); err != nil {
		return err
	}
	if err := b.wakeUp(filepath.Join(work, "fifo")); err != nil {
		return err
	}
	if b.json {
		return nil
	}
	return b.a.Out.Text(fmt.Sprintf("A sync of this disk costs %s. A push takes two: %.0f %% of its %s.\n",
		milliseconds(sync), 200*float64(sync)/float64(push), milliseconds(push)))
}

// appendTo returns a function that appends a page to a file and syncs it.
func appendTo(path string) func() (time.Duration, error) {
	page := make([]byte, 4096)
	return func() (time.Duration, error) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		err = f.Sync()
		return time.Since(start), err
	}
}

// pop measures a consumer's pages, each after the one before, and at the end the last one
// again.
func (b *bench) pop() error {
	if _, err := b.thread(nil, "subscribe", "--thread", b.dir, "--consumer", "page", "--handler", "true", "--from", "beginning"); err != nil {
		return err
	}
	last, pages := 0, benchBatch/benchPage
	_, err := b.repeat("pop", b.rounds, benchPage, func() (time.Duration, error) {
		took, err := b.thread(nil, "pop", "--thread", b.dir, "--consumer", "page", "--last-event-id", strconv.Itoa(last*benchPage), "--limit", strconv.Itoa(benchPage))
		last = min(last+1, pages-1)
		return took, err
	})
	return err
}

// wakeUp measures the way from a push to its handler, where there are FIFOs. The
// handler acks nothing, so that each push runs it once.
func (b *bench) wakeUp(path string) error {
	if err := mkfifo(path); errors.Is(err, errors.ErrUnsupported) {
		return nil
	} else if err != nil {
		return err
	}
	// For writing, too: the handler's open then never waits, and there is no end of file.
	fifo, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer fifo.Close()
	dir := b.dir
	b.dir += "-wake-up"
	defer func() { b.dir = dir }()
	if _, err := b.thread(nil, "init", b.dir); err != nil {
		return err
	}
	if _, err := b.thread(nil, "subscribe", "--thread", b.dir, "--consumer", "c", "--timeout", "10s", "--handler", "echo >"+shellQuoted(path)); err != nil {
		return err
	}
	told := make([]byte, 4096)
	_, err = b.repeat("wake-up", b.rounds, 1, func() (time.Duration, error) {
		time.Sleep(benchPause)
		if err := fifo.SetReadDeadline(time.Now().Add(benchPatience)); err != nil {
			return 0, err
		}
		start := time.Now()
		push := b.command("push", "--thread", b.dir, "--source", "bench", "--type", "t", "--content", "hello", "--quiet")
		push.Env = append(os.Environ(), "THREAD_DISPATCH=spawn")
		if err := push.Start(); err != nil {
			return 0, err
		}
		_, err := fifo.Read(told)
		took := time.Since(start)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = cli.LogicError("no handler started within "+benchPatience.String(), "see thread runs --failed, and whether the machine is overloaded")
		}
		return took, errors.Join(push.Wait(), err)
	})
	time.Sleep(benchPause)
	return err
}

// shellQuoted returns s as one word of a shell.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (b *bench) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.ctx, b.program, args...)
	cmd.Dir = filepath.Dir(b.dir)
	return cmd
}

// thread runs the program, without handlers, and returns how long that took.
func (b *bench) thread(stdin []byte, args ...string) (time.Duration, error) {
	cmd := b.command(args...)
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none")
	var said bytes.Buffer
	cmd.Stderr = &said
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil && b.ctx.Err() == nil {
		return 0, cli.LogicError("thread "+args[0]+" failed: "+strings.TrimSpace(cmp.Or(said.String(), err.Error())), "see whether the disk is full or cannot be written")
	}
	return took, errors.Join(err, b.ctx.Err())
}

type benchJSON struct {
	Name   string  `json:"name"`
	Rounds int     `json:"rounds"`
	P10    float64 `json:"p10_ms"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Rate   float64 `json:"events_per_second"`
}

// repeat does something that many times after once without counting, prints what it
// took and returns the median. Each time it is about that many events.
func (b *bench) repeat(name string, rounds, events int, do func() (time.Duration, error)) (time.Duration, error) {
	var took []time.Duration
	for i := range rounds + 1 {
		d, err := do()
		if err != nil {
			return 0, err
		}
		if i > 0 {
			took = append(took, d)
		}
	}
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[min(len(took)-1, len(took)*percent/100)] }
	rate := float64(events) / max(at(50), 1).Seconds()
	if b.json {
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		return at(50), b.a.Out.JSON(benchJSON{name, rounds, ms(at(10)), ms(at(50)), ms(at(99)), float64(int(rate))})
	}
	what := fmt.Sprintf("%-8s p10 %10s  median %10s  p99 %10s", name, milliseconds(at(10)), milliseconds(at(50)), milliseconds(at(99)))
	if events > 1 {
		what += fmt.Sprintf("  %.0f events/s", rate)
	}
	if err := b.a.Out.Text(what + "\n"); err != nil {
		return 0, err
	}
	return at(50), b.a.Out.Flush()
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000)
}

// removeAll removes a directory in which the last push's processes may still end.
func removeAll(dir string) (err error) {
	for range 50 {
		if err = os.RemoveAll(dir); err == nil || errors.Is(err, fs.ErrPermission) {
			return err
		}
		time.Sleep(benchPause)
	}
	return err
}
