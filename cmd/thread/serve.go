//go:build !noserve

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"thread/serve"
)

type serveCmd struct {
	Thread    []string `placeholder:"DIR" sep:"none" help:"Serve this thread directory; may be given more than once."`
	Root      []string `placeholder:"DIR" sep:"none" help:"Serve the thread directories in this one, also those that come later; may be given more than once."`
	Config    text     `placeholder:"FILE" help:"A JSON file with threads, roots and the limits of lanes."`
	Listen    text     `placeholder:"ADDRESS" help:"Answer GET /healthz, /metrics and /events there: 127.0.0.1:PORT or unix:PATH; other addresses need a token."`
	TokenFile text     `name:"token-file" placeholder:"FILE" help:"Ask who comes there for the token in this file (Authorization: Bearer)."`
	Drain     text     `placeholder:"DURATION" help:"How long handlers may go on after SIGTERM (default 30s)."`
	Log       text     `placeholder:"FILE" help:"Log into this file, 10 MB and five older ones of 28 days, instead of stderr."`
	LogFormat text     `name:"log-format" placeholder:"FORMAT" help:"text or json (default text)."`
	Verbose   bool     `help:"Log more."`
	Help      helpFlag `short:"h" help:"Show this help."`
}

func serveVerb() *verb {
	return &verb{
		name:    "serve",
		summary: "Stay and run the handlers of many threads",
		details: `Pushes to these threads are handled by this process as long as it runs, within
the limits of its lanes; without it each push starts its handlers itself. SIGTERM
ends it, SIGHUP reads the limits of --config again, SIGUSR1 resets the lanes.`,
		examples: `thread serve --thread ./inbox
thread serve --root /srv/threads --config /etc/thread.json --log-format json`,
		grammar: func() command { return new(serveCmd) },
	}
}

func (c *serveCmd) run(ctx context.Context, a *app) error {
	// --token-file "$UNSET" must not be the same as none.
	for _, f := range []struct {
		flag string
		text
	}{{"--config", c.Config}, {"--listen", c.Listen}, {"--token-file", c.TokenFile}, {"--log", c.Log}} {
		if f.set && f.value == "" {
			return usage(f.flag+" is empty", "give a value, or leave it out")
		}
	}
	config, err := c.config()
	if err != nil {
		return usage(err.Error(), "correct that file, see docs/SERVE.md")
	}
	opts := serve.Options{Limits: config.Lanes}
	if opts.Threads, err = c.directories("--thread", append(c.Thread, config.Threads...)); err != nil {
		return err
	}
	if opts.Roots, err = c.directories("--root", append(c.Root, config.Roots...)); err != nil {
		return err
	}
	if len(opts.Threads)+len(opts.Roots) == 0 {
		return usage("there is nothing to serve", "add --thread DIR or --root DIR")
	}
	if len(opts.Threads) == 1 {
		a.dir = opts.Threads[0] // for messages
	}
	for _, root := range opts.Roots {
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return logic("--root "+root+" is not a directory", "create it, or name another one")
		}
	}
	if c.Drain.set {
		if opts.Drain, err = time.ParseDuration(c.Drain.value); err != nil || opts.Drain <= 0 {
			return usage("--drain \""+c.Drain.value+"\" is not a positive duration", "give for example 30s")
		}
	}
	if opts.Log, err = c.logger(a.stderr); err != nil {
		return err
	}
	if c.TokenFile.set && !c.Listen.set {
		return usage("--token-file is for --listen, which is missing", "add --listen ADDRESS")
	}
	opts.Listen = c.Listen.value
	if opts.Token, err = c.token(); err != nil {
		return err
	}
	manager := serve.FindManager()
	tell := func(state string) {
		if err := manager.Tell(state); err != nil {
			opts.Log.Warn("the service manager cannot be told", "state", state, "error", err)
		}
	}
	opts.Ready = func() { tell("READY=1") }
	s, err := serve.New(opts)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, func() {
		stop() // a second signal ends it at once
		tell("STOPPING=1")
	})
	go manager.Feed(ctx, s.Alive)
	signals := make(chan os.Signal, 1)
	notifySteering(signals)
	go c.steer(ctx, s, signals, opts.Log)
	left, err := s.Run(ctx)
	if errors.Is(err, serve.ErrListen) {
		return usage(err.Error(), "give 127.0.0.1:PORT, unix:PATH, or with --token-file any address")
	}
	if errors.Is(err, serve.ErrAddress) {
		return logic(err.Error(), "end what listens there, or give another --listen")
	}
	if err == nil && left > 0 {
		a.warn("%d handlers were still running; thread dispatch takes over what they leave unread", left)
	}
	return err
}

func (c *serveCmd) config() (config serve.Config, err error) {
	if c.Config.set {
		config, err = serve.ReadConfig(c.Config.value)
	}
	return config, err
}

// token reads the token file: one line of visible characters.
func (c *serveCmd) token() (string, error) {
	if !c.TokenFile.set {
		return "", nil
	}
	data, err := os.ReadFile(c.TokenFile.value)
	if err != nil {
		return "", logic("--token-file: "+err.Error(), "name a file that can be read")
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		err = usage("--token-file "+c.TokenFile.value+" holds no token", "write one line of visible ASCII characters into it")
	}
	return token, err
}

func (c *serveCmd) directories(flag string, dirs []string) (list []string, err error) {
	for _, dir := range dirs {
		if dir == "" {
			return nil, usage(flag+" is empty", "name a directory")
		}
		dir, err := resolve(dir)
		if err != nil {
			return nil, err
		}
		list = append(list, dir)
	}
	return list, nil
}

// steer carries out the signals that are not the end, until ctx ends.
func (c *serveCmd) steer(ctx context.Context, s *serve.Server, signals <-chan os.Signal, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case got := <-signals:
			if isReset(got) {
				s.Reset()
				continue
			}
			// A file that is wrong changes nothing.
			config, err := c.config()
			if err == nil {
				err = s.Configure(config.Lanes)
			}
			if err != nil {
				log.Error("limits not reloaded", "error", err)
				continue
			}
			log.Info("limits reloaded", "lanes", config.Lanes)
		}
	}
}

// The bounds of the log file and its older ones.
const (
	serveLogMegabytes = 10
	serveLogCopies    = 5
	serveLogDays      = 28
)

func (c *serveCmd) logger(stderr io.Writer) (*slog.Logger, error) {
	w := stderr
	if c.Log.set {
		path, err := filepath.Abs(c.Log.value)
		if err != nil {
			return nil, err
		}
		// lumberjack says only at the first line that it cannot write.
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return nil, logic("--log: "+err.Error(), "name a file that can be written")
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
		w = &lumberjack.Logger{Filename: path, MaxSize: serveLogMegabytes, MaxBackups: serveLogCopies, MaxAge: serveLogDays}
	}
	o := &slog.HandlerOptions{}
	if c.Verbose {
		o.Level = slog.LevelDebug
	}
	switch c.LogFormat.or("text") {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, usage(fmt.Sprintf("--log-format %q is not known", c.LogFormat.value), "use text or json")
}
