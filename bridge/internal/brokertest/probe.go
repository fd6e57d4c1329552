package brokertest

import (
	"strings"
	"testing"

	"thread/bridge/trigger"
)

// Probe checks that a source warns of a dead letter queue that is missing, and only of
// that.
func Probe(t *testing.T, src trigger.Source) {
	t.Helper()
	defer src.Close()
	if err := src.Connect(t.Context(), trigger.NoState); err != nil {
		t.Fatal(err)
	}
	p := src.(trigger.Prober)
	if warning, err := p.ProbeDLQ(t.Context()); err != nil || !strings.Contains(warning, "does not exist yet") {
		t.Errorf("%q %v", warning, err)
	}
	if err := src.SendToDLQ(t.Context(), trigger.Message{ID: "m-1", Body: []byte("oops"), Key: "k"}, trigger.Reason{}); err != nil {
		t.Fatal(err)
	}
	if warning, err := p.ProbeDLQ(t.Context()); err != nil || warning != "" {
		t.Errorf("%q %v", warning, err)
	}
}
