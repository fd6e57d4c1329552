package dispatch

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm rings at a time of day, also when the host slept or its clock was set
// meanwhile, which a timer of the runtime does not notice.
type alarm struct {
	rings chan struct{}
	stop  func()
}

func newAlarm(at time.Time) *alarm {
	a := &alarm{rings: make(chan struct{})}
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err == nil {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(at.UnixNano())}
		if err = unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &spec, nil); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		timer := time.AfterFunc(time.Until(at), func() { close(a.rings) })
		a.stop = func() { timer.Stop() }
		return a
	}
	f := os.NewFile(uintptr(fd), "alarm")
	a.stop = func() { f.Close() }
	go func() {
		defer close(a.rings)
		_, _ = f.Read(make([]byte, 8)) // ECANCELED: the clock was set
	}()
	return a
}
