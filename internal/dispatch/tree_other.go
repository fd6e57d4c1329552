//go:build !linux

package dispatch

import (
	"os"
	"time"
)

// There is no exact way to find the processes of a handler on these systems, and none
// to be given its orphans: nothing is ended, and no handler is adopted.

func adoptOrphans()     {}
func reapOrphans()      {}
func countOrphans() int { return 0 }

// leader is the first process of a handler whose supervisor was killed; it cannot
// be told from another one here.
type leader struct {
	p       *os.Process
	elapsed time.Duration
}

func findLeader(*record) *leader { return nil }
func (l *leader) wait()          {}
func (l *leader) terminate()     {}
func (l *leader) kill()          {}

func reopenOutput(int, uint64) *os.File { return nil }
func (o *output) inode() uint64         { return 0 }

func beganAt(int) uint64 { return 0 }
