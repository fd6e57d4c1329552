package command

import "time"

// EnvRun is the environment variable that names the run of a process.
const EnvRun = "THREAD_RUN_ID"

// envDir names the thread directory of the run.
const envDir = "THREAD_DIR"

// Left says by what the processes of a command are known. A process belongs to the command
// if it, or else the nearest of its parents that has a mark, has one of these:
//
//   - the run id in its environment; an empty one means that it belongs to no run
//   - a descriptor by which one of the tree locks is held: a mere descriptor of
//     the file belongs to a bystander
//   - the session of the command's first process, while that is not waited for
//   - this process for a parent, as Orphan decides
//
// Only Linux tells. Elsewhere nothing is found, and the tree lock is waited for.
type Left struct {
	RunID  string
	Dir    string   // of the thread, where run ids are not unique without it; "": any
	Leader int      // a child of this process that has ended and is not waited for; 0: none
	Trees  []string // paths of tree locks
	// Supervisor is the path of a supervisor lock that is taken shared: its holders are not
	// ended. "": supervisors have it exclusively, so that none is alive.
	Supervisor string
	// Child reports whether a process is a child of this one that belongs to no command.
	Child func(pid int) bool
	// Orphan reports whether a child that this process has not started belongs to the command.
	Orphan func(s Stat) bool
	// Reap is called when processes have ended.
	Reap func()
}

// EndPause is how long the kernel may take to end killed processes before others are
// searched for, at first.
const EndPause = 100 * time.Millisecond

// endPoll is the pause where the end of a process cannot be waited for.
const endPoll = 10 * time.Millisecond

// Grace is how long what is left of a command has between SIGTERM and SIGKILL.
const Grace = 10 * time.Second
