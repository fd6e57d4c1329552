package trigger

import (
	"testing"
	"time"
)

// A call that hangs stops the beat, so that the watchdog is not fed; the beat continues
// after it.
func TestBeat(t *testing.T) {
	asked, answer := make(chan bool), make(chan bool)
	r := newRig(t, t.TempDir()+"/t", func(_ *Config, o *Options) {
		o.Governor = governor(func(*Question) (Answer, error) {
			asked <- true
			return Answer{Allow: <-answer}, nil
		})
	})
	if before := time.Now(); r.tr.Beat().Before(before) {
		t.Error("it beats for the process while it does not run")
	}
	r.tr.tickEvery = time.Millisecond
	r.start()
	r.send("m-1", `{}`)
	<-asked
	beat := r.tr.Beat()
	time.Sleep(20 * time.Millisecond) // ticks that no loop takes
	if now := r.tr.Beat(); !now.Equal(beat) {
		t.Errorf("it beats while it hangs: %s, %s", beat, now)
	}
	answer <- true
	r.acked(1)
	r.until("a beat", func() bool { return r.tr.Beat().After(beat) })
	r.stop()
}
