package trigger

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// the alerts ask for metrics that are there, and fire and stay silent as
// trigger-alerts.test.yaml says, where promtool is.
func TestAlerts(t *testing.T) {
	dir := filepath.FromSlash("../../packaging/prometheus")
	text, err := os.ReadFile(filepath.Join(dir, "trigger-alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m := newMetrics("q")
	m.lag = 0
	var samples strings.Builder
	if _, err := m.WriteTo(&samples); err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\bqueue_[a-z_]+[a-z]`).FindAllString(string(text), -1) {
		if !strings.Contains(samples.String(), "# TYPE "+name+" ") {
			t.Errorf("there is no metric %s", name)
		}
	}
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("there is no promtool")
	}
	for _, args := range [][]string{{"check", "rules", "trigger-alerts.yaml"}, {"test", "rules", "trigger-alerts.test.yaml"}, {"check", "metrics"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(samples.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// lag and backlog are measured at the start, not only after the first interval.
func TestMeasuredAtStart(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) { c.Settle, c.ExportInterval = SettleHandled, 3600 })
	if err := r.tr.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.send("m-1", `{}`)
	r.send("m-2", `{}`)
	r.start()
	r.until("the lag", func() bool { l := r.tr.Metrics().Read().Lag; return l != nil && *l == 2 })
	if err := r.tr.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.until("the events", func() bool { return len(r.events()) == 2 })
	r.stop()
	r.start()
	r.until("the backlog", func() bool { return r.tr.Metrics().Read().Backlog == 2 })
	r.handle(succeeds)
	r.acked(2)
	r.stop()
}
