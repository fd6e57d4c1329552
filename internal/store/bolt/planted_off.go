//go:build !planted || !unix

package bolt

import (
	"os"
	"time"
)

func dropLock(*os.File) {}

func forgetDue(*database, time.Time) {}
