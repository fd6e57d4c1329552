package trigger

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
)

// A large transaction logs one line, unless each message is asked for.
func TestLogOfLargeBatches(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelInfo, slog.LevelDebug} {
		r := newRig(t, t.TempDir()+"/t", nil)
		r.tr.log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: level}))
		if err := r.tr.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			r.send(fmt.Sprint("m-", i), `{}`)
		}
		if err := r.tr.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.start()
		r.acked(20)
		r.stop()
		one, each := r.log.count(`msg=stored messages=20 trace_id=queue-m-0 event=1 last_trace_id=queue-m-19 last_event=20`), r.log.count("msg=stored trace_id=")
		if level == slog.LevelInfo && (one != 1 || each != 0) || level == slog.LevelDebug && (one != 0 || each != 20) {
			t.Errorf("%s: %s", level, r.log)
		}
	}
}

func BenchmarkLog(b *testing.B) {
	log := slog.New(RedactHandler{slog.NewTextHandler(io.Discard, nil)}).With("trigger", "orders-in", "queue", "orders")
	id := "queue-" + strings.Repeat("a-", 20)
	b.ReportAllocs()
	for b.Loop() {
		log.Info("stored", "trace_id", id, "event", int64(7), "deliveries", int64(1))
	}
}
