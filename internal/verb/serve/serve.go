package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"gopkg.in/natefinch/lumberjack.v2"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/serve"
	"thread/internal/systemd"
	"thread/internal/target"
	"thread/lane"
)

type serveCmd struct {
	Thread    []string     `placeholder:"DIR" sep:"none" help:"Serve this thread, a directory or a URL; may be given more than once."`
	Root      []string     `placeholder:"DIR" sep:"none" help:"Serve the thread directories in this one, also those that come later; may be given more than once."`
	Lane      []string     `placeholder:"NAME=N" sep:"none" help:"How many handlers of this lane run at once on this host; may be given more than once."`
	Config    cli.Text     `placeholder:"FILE" help:"A JSON file with threads, roots and the limits of lanes."`
	Listen    cli.Text     `placeholder:"ADDRESS" help:"Answer over HTTP there, programs and scrapes: unix:PATH, or with a token ADDRESS, ADDRESS:PORT or :PORT."`
	TokenFile cli.Text     `name:"token-file" placeholder:"FILE" help:"Ask who comes there for the token in this file (Authorization: Bearer), or for one of many, each on a line NAME read|write|admin TOKEN; by default for that in THREAD_TOKEN."`
	TLSCert   cli.Text     `name:"tls-cert" placeholder:"FILE" help:"Speak TLS there with the certificates in this PEM file, with --tls-key."`
	TLSKey    cli.Text     `name:"tls-key" placeholder:"FILE" help:"The key of the certificate."`
	UI        bool         `name:"ui" help:"Also answer with pages for a browser there, by default at 127.0.0.1:9464, and print an address that opens them once."`
	ReadOnly  bool         `name:"read-only" help:"Change nothing over HTTP: neither by these pages nor by programs."`
	Proxies   []string     `name:"trusted-proxy" placeholder:"NETWORK" help:"Believe X-Forwarded-For of the proxy there, an address or a network as 10.0.0.0/8; may be given more than once."`
	External  cli.Text     `name:"external-url" placeholder:"URL" help:"The address at which browsers reach the pages behind a proxy, as https://example.org/thread/."`
	BasePath  cli.Text     `name:"base-path" placeholder:"PATH" help:"The path below which a proxy has the pages, as /thread, without --external-url."`
	Work      cli.Text     `placeholder:"CMD" help:"Run this command, by sh -c, for each queued run of these threads, as thread run work does."`
	OTLP      cli.Text     `name:"otlp" placeholder:"URL" help:"Export traces of handlers and recorded runs to this OTLP/HTTP endpoint, as http://127.0.0.1:4318."`
	Spans     bool         `hidden:""` // of package spans: export lines of stdin, and no more
	Drain     cli.Text     `placeholder:"DURATION" help:"How long handlers may continue after SIGTERM (default 30s)."`
	Log       cli.Text     `placeholder:"FILE" help:"Log into this file, 10 MB and five older ones of 28 days, instead of stderr."`
	LogFormat cli.Text     `name:"log-format" placeholder:"FORMAT" help:"text or json (default text)."`
	Verbose   bool         `help:"Log more."`
	Help      cli.HelpFlag `short:"h" help:"Show this help."`

	certificate *serve.Certificate // nil: no TLS
}

var serveVerb = &cli.Verb{
	Name:    "serve",
	Summary: "Stay and run the handlers of many threads",
	Details: `Pushes to these threads are handled by this process as long as it runs, within
the limits of its lanes; without it each push starts its handlers itself, but in
PostgreSQL, where one of the hosts that serve a thread works for a consumer. Recorded
runs whose workers are gone are recovered at the start and every 15 s. SIGTERM ends
it, SIGHUP reads the limits of --config, the tokens and the certificate again, SIGUSR1 resets the lanes.`,
	Exits: "0 ended by SIGTERM or SIGINT\n1 another thread serve runs, the address is taken, the thread belongs to another account",
	Examples: `thread serve --thread ./inbox
thread serve --root /srv/threads --ui
thread serve --thread 'postgres://db/app?thread=inbox' --thread ./inbox --lane slow=1
thread serve --root /srv/threads --config /etc/thread.json --log-format json`,
	Grammar: func() cli.Command { return new(serveCmd) },
	Server:  true,
	Errors:  errorWords,
}

// NamesThread is for package cli.
func (c *serveCmd) NamesThread() string {
	config, _ := c.config() // Run reports what is wrong with it
	for _, dir := range c.threads(&config) {
		if cli.IsURL(dir) {
			return dir
		}
	}
	return ""
}

// threads returns what --thread and --config name, or the URL of THREAD_DIR where nothing is
// named.
func (c *serveCmd) threads(config *serve.Config) []string {
	list := append(c.Thread, config.Threads...)
	if url := os.Getenv("THREAD_DIR"); len(list)+len(c.Root)+len(config.Roots) == 0 && cli.IsURL(url) {
		return []string{url}
	}
	return list
}

// remote is what runs the handlers of threads on servers; nil in a program without them.
var remote func(t *engine.Thread, log *slog.Logger) serve.Remote

// SetRemote sets what runs the handlers of threads on servers. It comes before cli.Main.
func SetRemote(of func(t *engine.Thread, log *slog.Logger) serve.Remote) { remote = of }

func (c *serveCmd) Run(ctx context.Context, a *cli.App) error {
	// --token-file "$UNSET" must not be the same as none.
	for _, f := range []struct {
		flag string
		cli.Text
	}{{"--config", c.Config}, {"--listen", c.Listen}, {"--token-file", c.TokenFile}, {"--tls-cert", c.TLSCert}, {"--tls-key", c.TLSKey}, {"--external-url", c.External}, {"--base-path", c.BasePath}, {"--log", c.Log}, {"--otlp", c.OTLP}, {"--work", c.Work}} {
		if f.Set && f.Value == "" {
			return cli.UsageError(f.flag+" is empty", "give a value, or leave it out")
		}
	}
	if c.Spans {
		return c.exportSpans(a)
	}
	config, err := c.config()
	if errors.Is(err, serve.ErrConfig) {
		err = cli.UsageError(err.Error(), "correct that file, see docs/reference/serve.md")
	}
	if err != nil {
		return err
	}
	opts := serve.Options{Limits: config.Lanes, Work: config.Work, Remote: remote}
	if c.Work.Set {
		opts.Work.Command = c.Work.Value
	}
	if opts.Threads, err = c.directories("--thread", c.threads(&config)); err != nil {
		return err
	}
	if opts.Roots, err = c.directories("--root", append(c.Root, config.Roots...)); err != nil {
		return err
	}
	if len(opts.Threads)+len(opts.Roots) == 0 {
		return cli.UsageError("there is nothing to serve", "add --thread DIR or --root DIR")
	}
	if len(opts.Threads) == 1 {
		a.Dir = opts.Threads[0] // for messages
	}
	for _, root := range opts.Roots {
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return cli.LogicError("--root "+root+" is not a directory", "create it, or name another one")
		}
	}
	if c.Drain.Set {
		if opts.Drain, err = cli.ParseDuration("--drain", c.Drain.Value); err != nil {
			return err
		}
	}
	if opts.Log, err = c.logger(a.Stderr); err != nil {
		return err
	}
	if opts.Tracer, err = c.tracer(opts.Log); err != nil {
		return err
	}
	if c.ReadOnly && !c.UI && !c.Listen.Set {
		return cli.UsageError("--read-only is for --listen or --ui, which are missing", "add one of them, or leave it out")
	}
	if opts.Proxies, err = proxies(c.Proxies); err != nil {
		return err
	}
	if err := c.external(&opts); err != nil {
		return err
	}
	if c.UI && !c.Listen.Set {
		c.Listen = cli.Text{Value: "localhost", Set: true}
	}
	if c.TokenFile.Set && !c.Listen.Set {
		return cli.UsageError("--token-file is for --listen, which is missing", "add --listen ADDRESS")
	}
	opts.Listen = c.Listen.Value
	if opts.Clients, err = c.clients(opts.Log); err != nil {
		return err
	}
	if c.Listen.Set {
		opts.Answers = kept("answers", opts.Listen, ".jsonl", "a restart forgets the keys of requests: their answers cannot be kept", opts.Log)
		opts.Deliveries = kept("deliveries", opts.Listen, ".key", "a restart forgets deliveries: their key cannot be kept", opts.Log)
	}
	if err := c.readCertificate(&opts); err != nil {
		return err
	}
	if opts.UI, opts.ReadOnly = c.UI, c.ReadOnly; c.UI {
		opts.Sessions = kept("page", opts.Listen, ".json", "a restart logs browsers out: their sessions cannot be kept", opts.Log)
		if len(opts.Clients) == 0 && !strings.HasPrefix(opts.Listen, "unix:") {
			opts.Clients, _ = serve.ParseClients(rand.Text() + rand.Text()) // for the one browser that gets the address
			opts.NoTokens = true
		}
		opts.Opened = func(address string) { _ = a.Out.Text("Open " + address + "\n"); _ = a.Out.Flush() }
	}
	notify := func(state string) {
		if err := systemd.Notify(state); err != nil {
			opts.Log.Warn("the service manager cannot be told", "state", state, "error", err)
		}
	}
	opts.Ready = func() {
		warnPlain(&opts)
		notify(daemon.SdNotifyReady)
	}
	s, err := serve.New(opts)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, func() {
		stop() // a second signal ends it at once
		notify(daemon.SdNotifyStopping)
	})
	go systemd.FeedWatchdog(ctx, s.Alive)
	signals := make(chan os.Signal, 1)
	notifySteering(signals)
	go c.steer(ctx, s, signals, opts.Log)
	if !slices.ContainsFunc(opts.Threads, cli.IsURL) { // their handlers are other children
		dispatch.AdoptOrphans()
	}
	left, err := s.Run(ctx)
	if failed := (*serve.ThreadError)(nil); errors.As(err, &failed) {
		a.Dir = failed.Thread // for messages
	}
	if err == nil && left > 0 {
		a.Warn("%d handlers were still running; thread dispatch takes over what they leave unread", left)
	}
	return err
}

// config returns what --config and --lane say.
func (c *serveCmd) config() (config serve.Config, err error) {
	if c.Config.Set {
		config, err = serve.ReadConfig(c.Config.Value)
	}
	for _, text := range c.Lane {
		if err != nil {
			break
		}
		err = setLane(&config, text)
	}
	return config, err
}

// maxLane bounds a limit of --lane.
const maxLane = 1 << 20

// setLane adds a --lane, which counts more than a limit of the file.
func setLane(config *serve.Config, text string) error {
	name, number, _ := strings.Cut(text, "=")
	n, ok := cli.ParseNumber(number)
	name = strings.TrimSpace(name)
	if name == "" || !ok || n < 1 || n > maxLane {
		return cli.UsageError("--lane \""+text+"\" is not a lane and its limit", "give NAME=N, N from 1 to 1048576")
	}
	if strings.HasPrefix(name, "session:") {
		return cli.UsageError("lane \""+name+"\" belongs to a session, its limit is 1", "give another name")
	}
	limits := map[string]float64{lane.GlobalLane(name): float64(n)}
	for other, limit := range config.Lanes {
		if lane.GlobalLane(other) != lane.GlobalLane(name) {
			limits[other] = limit
		}
	}
	config.Lanes = limits
	return nil
}

func (c *serveCmd) directories(flag string, dirs []string) (list []string, err error) {
	for _, dir := range dirs {
		if dir == "" {
			return nil, cli.UsageError(flag+" is empty", "name a directory")
		}
		if cli.IsURL(dir) && flag == "--root" {
			return nil, cli.UsageError("--root is a directory, and there is none in PostgreSQL", "name each thread with --thread")
		}
		if !cli.IsURL(dir) {
			if dir, err = cli.Resolve(dir); err != nil {
				return nil, err
			}
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
			c.reload(s, log)
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
	if c.Log.Set {
		path, err := logPath(c.Log.Value)
		if err != nil {
			return nil, err
		}
		// lumberjack would make missing directories, and opens the file with the first
		// write: that comes now, while there are descriptors.
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		file := &lumberjack.Logger{Filename: path, MaxSize: serveLogMegabytes, MaxBackups: serveLogCopies, MaxAge: serveLogDays}
		if err != nil {
			return nil, cli.LogicError("--log: "+err.Error(), "name a file that can be written")
		}
		_, werr := file.Write(nil)
		if err = errors.Join(werr, f.Close()); err != nil {
			return nil, cli.LogicError("--log: "+err.Error(), "name a file that can be written")
		}
		w = file
	}
	o := &slog.HandlerOptions{}
	if c.Verbose {
		o.Level = slog.LevelDebug
	}
	switch c.LogFormat.Or("text") {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, cli.UsageError(fmt.Sprintf("--log-format %q is not known", c.LogFormat.Value), "use text or json")
}

// logPath returns the absolute path of a log file, which may be missing or be a
// log already: what is written to is also renamed when it is large, and deleted when
// it is old.
func logPath(name string) (string, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if err := target.Outside(path); err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return path, nil
	}
	refuse := func(why string) (string, error) {
		return "", cli.LogicError("--log: "+path+" "+why, "name a new file")
	}
	if err == nil && !info.Mode().IsRegular() {
		return refuse("is not a regular file")
	}
	var begin []byte
	if err != nil {
		return "", cli.LogicError("--log: "+err.Error(), "name a file that can be written")
	}
	begin, _, err = readSmall(path)
	if err != nil {
		return "", cli.LogicError("--log: "+err.Error(), "name a file that can be written")
	}
	if len(begin) > 0 && !bytes.HasPrefix(begin, []byte("time=")) && !bytes.HasPrefix(begin, []byte(`{"time":`)) {
		return refuse("is not a log of thread serve")
	}
	return path, nil
}
