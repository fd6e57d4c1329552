package serve

import "os"

func notifySteering(chan os.Signal) {} // there are none

func notifyResize(chan os.Signal) {}

func isReset(os.Signal) bool { return false }
