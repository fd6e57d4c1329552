package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/terminal"
)

// The environment of a command that a recorded run runs.
const (
	envRun     = "THREAD_RUN_ID"
	envAttempt = "THREAD_RUN_ATTEMPT"
	envSession = "THREAD_SESSION_ID"
	envTrace   = "TRACEPARENT" // as the W3C has it
	envRequest = "THREAD_REQUEST_ID"
)

// with opens the history of the thread directory for fn.
func with(ctx context.Context, a *cli.App, dir cli.Text, fn func(h *history.History) error) error {
	if err := a.SetDir("--thread", dir.Value); err != nil {
		return err
	}
	if err := a.RefuseHistory(); err != nil {
		return err
	}
	h, err := history.Open(ctx, a.Dir, history.WithLogLines(a.LogInfo))
	if err != nil {
		return err
	}
	return ofHistory(h, fn(h))
}

// ofHistory returns err as one about the directory of the history, if that is damaged.
func ofHistory(h *history.History, err error) error {
	if errors.Is(err, engine.ErrCorrupt) && !cli.IsURL(h.Dir()) {
		return &history.DirError{Dir: h.Dir(), Err: err}
	}
	return err
}

// runFlags name a run: by an argument, or by the environment of its command.
type runFlags struct {
	cli.ThreadFlags
	RunID   cli.Text `arg:"" optional:"" name:"run" help:"The id of the run; by default that in THREAD_RUN_ID."`
	Attempt cli.Text `placeholder:"N" help:"The attempt that this worker is for, to be refused when recovery has given the run to another; by default that in THREAD_RUN_ATTEMPT."`
}

func (c *runFlags) id() (string, error) {
	id := c.RunID.Or(os.Getenv(envRun))
	if id == "" {
		return "", cli.UsageError("no run is named", "give its id; only in the command of a run it has a default")
	}
	return id, nil
}

// attach returns a handle on the run.
func (c *runFlags) attach(h *history.History) (*history.Run, error) {
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	text := c.Attempt.Value
	if !c.Attempt.Set && id == os.Getenv(envRun) {
		text = os.Getenv(envAttempt)
	}
	if text == "" {
		if consumer := os.Getenv("THREAD_CONSUMER"); consumer != "" && id == os.Getenv(envRun) {
			return h.AttachHandler(id, consumer), nil
		}
		return h.Attach(id, 0), nil
	}
	n, ok := cli.ParseNumber(text)
	if !ok || n < 1 {
		return nil, cli.UsageError(fmt.Sprintf("attempt %q is not a number from 1", text), "give the attempt that thread run next --json prints")
	}
	return h.Attach(id, n), nil
}

// content is JSON from a file or from the command line.
func jsonFrom(a *cli.App, flag string, file cli.Text) (json.RawMessage, error) {
	if !file.Set {
		return nil, nil
	}
	b, err := fileOrStdin(a, file.Value)
	if err != nil {
		return nil, err
	}
	return checkJSON(flag, b)
}

func checkJSON(flag string, b []byte) (json.RawMessage, error) {
	b = []byte(strings.TrimSpace(string(b)))
	if !json.Valid(b) {
		return nil, cli.UsageError(flag+" is not JSON", `give JSON, for example {"a":1} or "text"`)
	}
	return b, nil
}

func jsonText(flag string, text cli.Text) (json.RawMessage, error) {
	if !text.Set {
		return nil, nil
	}
	return checkJSON(flag, []byte(text.Value))
}

// fileOrStdin reads all of a file, of stdin for "-".
func fileOrStdin(a *cli.App, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.Stdin)
	}
	return os.ReadFile(name)
}

// put prints a row as a line: of JSON, or what text says.
func put(a *cli.App, asJSON bool, row history.Row, text string) error {
	if !asJSON {
		return a.Out.Text(text + "\n")
	}
	b, err := history.AppendJSON(a.Out.Buf, row)
	if err != nil {
		return err
	}
	a.Out.Buf = append(b, '\n')
	return a.Out.More()
}

// tableOnTerminal returns a table with those columns where it is seen, nil elsewhere: a
// line for each row is what scripts read. The columns are not narrower than least.
func tableOnTerminal(a *cli.App, json bool, least []int, columns ...string) *terminal.Table {
	width := terminal.TableColumns(a.Out.W)
	if json || width == 0 {
		return nil
	}
	t := &terminal.Table{Out: &a.Out, Columns: width, Least: least}
	t.Header(columns...)
	return t
}

// list prints rows, each as put does, or where table is not nil as cells of it.
func list[T any](a *cli.App, asJSON bool, rows iter.Seq2[T, error], table *terminal.Table, cells func(*T) []string, text func(*T) string) error {
	for r, err := range rows {
		if err != nil {
			return err
		}
		if table != nil {
			err = table.Row(printable(cells(&r)...)...)
		} else {
			err = put(a, asJSON, any(&r).(history.Row), text(&r))
		}
		if err != nil {
			return err
		}
	}
	if table == nil {
		return nil
	}
	return table.Flush()
}

// printable makes cells of a table of texts.
func printable(cells ...string) []string {
	for i := range cells {
		cells[i] = terminal.Printable(cells[i])
	}
	return cells
}

// line joins what is not empty, printable.
func line(parts ...string) string {
	var said []string
	for _, p := range parts {
		if p != "" {
			said = append(said, terminal.Printable(p))
		}
	}
	return strings.Join(said, "  ")
}

func labelled(label, value string) string {
	if value == "" {
		return ""
	}
	return label + " " + value
}

func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}

func runLine(r *history.RunRow) string {
	status := r.Status
	if r.Active() && !r.CancelRequestedAt.IsZero() {
		status += ", to be cancelled"
	}
	agent := r.EffectiveAgentName
	if r.SwitchCount > 0 {
		agent += " (was " + r.AgentName + ")"
	}
	return line(r.ID, status, labelled("agent", agent), labelled("session", r.SessionID), labelled("for", r.InitiatorRef),
		at(r.CreatedAt), tookText(r), holds(r), labelled("attempt", attempts(r.Attempt)), labelled("error", firstLine(cmp.Or(r.ErrorMessage, r.ErrorCode))))
}

// holds says what holds a run that is queued or waits.
func holds(r *history.RunRow) string {
	if h := history.HoldOf(r); h != nil {
		return h.String()
	}
	return ""
}

// tookText is how long a run has taken, "" for one that has not begun.
func tookText(r *history.RunRow) string {
	if r.StartedAt.IsZero() {
		return ""
	}
	return r.Duration(time.Now()).Round(time.Millisecond).String()
}

func attempts(n int64) string {
	if n < 2 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// limitOf reads --limit.
func limitOf(text cli.Text) (int64, error) {
	if !text.Set {
		return 0, nil
	}
	return cli.ParseLimit(text.Value)
}
