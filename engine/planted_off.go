//go:build !planted || !unix

package engine

import (
	"os"
	"time"
)

func dropLock(*os.File) {}

func forgetDue(*database, time.Time) {}
