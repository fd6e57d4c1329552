// Package history has the verbs of thread-history: recorded runs, sessions, messages
// and their history.
package history

import "thread/internal/cli"

// Verbs are the verbs of thread-history.
var Verbs = []cli.Entry{
	{Name: "run exec", Build: runExecVerb},
	{Name: "run start", Build: runStartVerb},
	{Name: "run enqueue", Build: runEnqueueVerb},
	{Name: "run next", Build: runNextVerb},
	{Name: "run work", Build: runWorkVerb},
	{Name: "run list", Build: runListVerb},
	{Name: "run show", Build: runShowVerb},
	{Name: "run step", Build: runStepVerb},
	{Name: "run tool", Build: runToolVerb},
	{Name: "run hook", Build: runHookVerb},
	{Name: "run action", Build: runActionVerb},
	{Name: "run artifact", Build: runArtifactVerb},
	{Name: "run beat", Build: runBeatVerb},
	{Name: "run switch", Build: runSwitchVerb},
	{Name: "run cancel", Build: runCancelVerb},
	{Name: "run end", Build: runEndVerb},
	{Name: "run requeue", Build: runRequeueVerb},
	{Name: "run recover", Build: runRecoverVerb},
	{Name: "session start", Build: sessionStartVerb},
	{Name: "session list", Build: sessionListVerb},
	{Name: "session show", Build: sessionShowVerb},
	{Name: "session delete", Build: sessionDeleteVerb},
	{Name: "message add", Build: messageAddVerb},
	{Name: "message list", Build: messageListVerb},
	{Name: "workspace set", Build: workspaceSetVerb},
	{Name: "workspace show", Build: workspaceShowVerb},
	{Name: "workspace list", Build: workspaceListVerb},
	{Name: "backup", Build: backupVerb},
	{Name: "restore", Build: restoreVerb},
	{Name: "history tail", Build: historyTailVerb},
	{Name: "history audit", Build: historyAuditVerb},
	{Name: "history import", Program: "thread-sqlite", Args: "<file>", Summary: "Take over the rows of a history.db"},
	{Name: "history mirror", Program: "thread-sqlite", Summary: "Keep a copy of a history in SQLite or PostgreSQL up to date"},
	{Name: "history prune", Build: historyPruneVerb},
	{Name: "history limit", Build: historyLimitVerb},
	{Name: "history rebuild", Build: historyRebuildVerb},
	{Name: "history retain", Build: historyRetainVerb},
	{Name: "history take", Build: historyTakeVerb},
	{Name: "runs", Build: runsVerb},
	{Name: "logs", Build: logsVerb},
}
