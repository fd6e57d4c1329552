package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/otlp"
	"thread/internal/spans"
	"thread/jsonlog"
)

// tracer returns what --otlp asks for, nil without it.
func (c *serveCmd) tracer(log *slog.Logger) (*otlp.Tracer, error) {
	if !c.OTLP.Set {
		return nil, nil
	}
	client, err := c.client(func(format string, args ...any) { log.Warn(fmt.Sprintf(format, args...)) })
	if err != nil {
		return nil, err
	}
	return otlp.NewTracer(client, engineOptions), nil
}

func (c *serveCmd) client(warn func(format string, args ...any)) (*otlp.Client, error) {
	client, err := otlp.New(c.OTLP.Value, cli.Version(), warn)
	if errors.Is(err, otlp.ErrEndpoint) {
		return nil, cli.UsageError("--otlp "+err.Error(), "give for example http://127.0.0.1:4318, and credentials in OTEL_EXPORTER_OTLP_HEADERS")
	}
	return client, err
}

func engineOptions(thread string) []engine.Option {
	if cli.IsURL(thread) {
		return nil
	}
	return []engine.Option{dispatch.OwnFile(thread)}
}

// exportSpans is the program of [spans.Open]: it exports the spans on stdin until that ends,
// and the runs of the thread, if there is one. What goes wrong is in the log of the thread.
func (c *serveCmd) exportSpans(a *cli.App) error {
	warn := func(string, ...any) {}
	var dirs []string
	if len(c.Thread) == 1 {
		dirs = c.Thread
	}
	if len(dirs) == 1 && !cli.IsURL(dirs[0]) {
		log := jsonlog.OpenLog(dirs[0])
		warn = func(format string, args ...any) { _ = log.Warn(format, args...) } // a log that cannot be written stops nothing
	}
	client, err := c.client(warn)
	if err != nil {
		return err
	}
	// It ends with its stdin, and not with what is sent to all processes of a service.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	stop := otlp.NewTracer(client, engineOptions).Start(func() []string { return dirs }) // before what it is to export
	defer stop()
	if err := a.Out.Text(spans.Ready + "\n"); err != nil {
		return err
	}
	if err := a.Out.Flush(); err != nil {
		return err
	}
	client.Lines(context.Background(), a.Stdin)
	return nil
}
