//go:build linux

package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"thread/engine"
)

const packaging = "../../packaging/"

// TestMonitoring: what the dashboard and the alerts ask for is there, and Prometheus
// understands it, where promtool is.
func TestMonitoring(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.fifo("go")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo ran > "$D/at"; read x < "$D/go"; ` + drain})
	b.listen(Options{})
	b.push("s")
	b.line(at)
	_, _, during := b.get("/metrics")
	if err := os.WriteFile(b.path("go"), []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	b.idle()
	_, _, samples := b.get("/metrics")
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+)[{ ]`).FindAllStringSubmatch(during+samples, -1) {
		known[m[1]] = true
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile(packaging + "grafana/thread-serve.json")
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	rules := "groups:\n- name: dashboard\n  rules:\n"
	n := 0
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			n++
			expr := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$thread", ".*").Replace(target.Expr)
			quoted, _ := json.Marshal(expr) // never fails
			rules += fmt.Sprintf("  - {record: r%d, expr: %s}\n", n, quoted)
		}
	}
	if n < 20 {
		t.Fatalf("%d expressions", n)
	}
	alerts, err := os.ReadFile(packaging + "prometheus/serve-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	asked := regexp.MustCompile(`\b(?:thread|process)_[a-z_]+[a-z]`).FindAllString(rules+string(alerts), -1)
	if len(asked) < 30 {
		t.Fatalf("%d metrics are asked for", len(asked))
	}
	for _, name := range asked {
		if !known[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("there is no promtool")
	}
	if err := os.WriteFile(b.path("rules.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", b.path("rules.yaml")}, {"check", "rules", "serve-alerts.yaml"}, {"test", "rules", "serve-alerts.test.yaml"}, {"check", "metrics"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = filepath.FromSlash(packaging + "prometheus")
		cmd.Stdin = strings.NewReader(samples)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
