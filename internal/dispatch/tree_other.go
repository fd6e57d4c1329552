//go:build !linux

package dispatch

import (
	"context"
	"os"
	"time"
)

// There is no exact way to find the processes of a handler on these systems, and none
// to be given its orphans: nothing is ended, and no handler is adopted.

func adoptOrphans()     {}
func reapOrphans()      {}
func countOrphans() int { return 0 }

type remains struct {
	runID   string
	leader  int
	orphans *orphanScope
	began   uint64
}

func (r *dispatcher) evict(context.Context, string, remains, time.Duration) error { return nil }

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

// endedBySignal is not asked before the process is waited for: nothing is evicted here.
func endedBySignal(int) bool { return false }
