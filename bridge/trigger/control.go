package trigger

import (
	"context"
	"fmt"

	"thread/engine"
)

// control is what was ordered by hand. It is in the thread, so that it counts for a
// trigger that does not run, too, and outlives one that does.
type control struct {
	Paused bool `json:"paused"`
}

func readControl(ctx context.Context, t *engine.Thread, name string) (c control, err error) {
	err = t.View(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		_, err = getJSON(r, key(kindControl, name), &c)
		return err
	})
	return c, err
}

// Paused reports whether the trigger of that name is paused.
func Paused(ctx context.Context, t *engine.Thread, name string) (bool, error) {
	c, err := readControl(ctx, t, name)
	return c.Paused, err
}

// SetPaused pauses or resumes the trigger of that name, in whichever process it runs
// and also when it does not.
func SetPaused(ctx context.Context, t *engine.Thread, name string, paused bool) error {
	return t.Update(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		return putJSON(r, key(kindControl, name), control{paused})
	})
}

// SetPositions stores positions and other records of an adapter in place of those
// that are there: a deliberate rewind.
func SetPositions(ctx context.Context, t *engine.Thread, c *Config, ws []Write) error {
	return newState(t, c).Update(ctx, ws)
}

// Positions returns what is stored for the configuration's adapter, queue and group.
func Positions(t *engine.Thread, c *Config) map[string][]byte { return newState(t, c).All("") }

// StateOf returns the State of a configuration.
func StateOf(t *engine.Thread, c *Config) State { return newState(t, c) }

// Pause stops the taking of messages until Resume; what is in flight continues.
func (t *Trigger) Pause(ctx context.Context) error { return t.setControl(ctx, true) }

// Resume ends a pause.
func (t *Trigger) Resume(ctx context.Context) error { return t.setControl(ctx, false) }

func (t *Trigger) setControl(ctx context.Context, paused bool) error {
	if err := SetPaused(ctx, t.th, t.cfg.Name, paused); err != nil {
		return err
	}
	t.setPaused(paused)
	return nil
}

// obey reads what was ordered.
func (t *Trigger) obey(ctx context.Context) error {
	c, err := readControl(ctx, t.th, t.cfg.Name)
	if err != nil {
		return err
	}
	t.setPaused(c.Paused)
	return nil
}

func (t *Trigger) setPaused(paused bool) {
	t.mu.Lock()
	was := t.paused
	t.paused = paused
	if paused && t.halt != nil {
		t.halt()
	}
	t.mu.Unlock()
	if paused {
		t.noteTrouble(troubleConsume, nil)
	}
	if was != paused {
		t.log.Info("paused or resumed", "paused", paused)
	}
}

// Status is the answer of a health check.
type Status struct {
	Status         string  `json:"status"` // healthy or unhealthy
	Name           string  `json:"name"`
	Queue          string  `json:"queue"`
	Running        bool    `json:"running"`
	Paused         bool    `json:"paused"`
	AdapterHealthy bool    `json:"adapter_healthy"`
	ActiveWorkers  int     `json:"active_workers"` // that are busy with a message
	Processed      int64   `json:"processed"`
	Failed         int64   `json:"failed"`
	DedupHits      int64   `json:"dedup_hits"`
	Detail         *string `json:"detail"` // what is wrong, without credentials
	Metrics        Counts  `json:"metrics"`
}

// Health returns how the trigger is.
func (t *Trigger) Health(ctx context.Context) Status {
	t.mu.Lock()
	s := Status{Status: "unhealthy", Name: t.cfg.Name, Queue: t.cfg.Queue, Running: t.running, Paused: t.paused}
	full := t.full
	t.mu.Unlock()
	h := Health{Detail: "not running"}
	if s.Running {
		h = t.src.Health(ctx)
	}
	s.AdapterHealthy = h.OK
	lasting, wrong := t.metrics.worst()
	if s.Running && h.OK && lasting < patience {
		s.Status = "healthy"
	}
	if s.Metrics = t.metrics.Read(); s.Running {
		s.ActiveWorkers = s.Metrics.busy
	}
	s.Processed, s.Failed, s.DedupHits = s.Metrics.Processed, s.Metrics.Failed, s.Metrics.DedupHits
	if wrong != nil {
		s.Detail = text(Redact(wrong.Error()))
	} else if !h.OK {
		s.Detail = text(Redact(h.Detail))
	} else if full {
		s.Detail = text(fmt.Sprintf("max_backlog of %d events is reached: no messages are taken until consumer %s continues", t.cfg.MaxBacklog, t.cfg.Consumer))
	}
	return s
}

// Metrics returns what the trigger counts, also with metrics.enabled: false, for
// [Trigger.Health].
func (t *Trigger) Metrics() *Metrics { return t.metrics }
