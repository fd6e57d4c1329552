// Package core has the verbs of thread itself, one file each. What a verb does lives in
// the packages below.
package core

import "thread/internal/cli"

// Verbs are the verbs of thread itself, and those that it runs another program
// for, in the order of the overview.
var Verbs = []cli.Entry{
	{Name: "init", Topic: cli.TopicEvents, Verb: initVerb},
	{Name: "push", Topic: cli.TopicEvents, Verb: pushVerb},
	{Name: "peek", Topic: cli.TopicEvents, Verb: peekVerb},
	{Name: "tail", Topic: cli.TopicEvents, Verb: tailVerb},

	{Name: "subscribe", Topic: cli.TopicConsumers, Verb: subscribeVerb},
	{Name: "consume", Topic: cli.TopicConsumers, Verb: consumeVerb},
	{Name: "pop", Topic: cli.TopicConsumers, Verb: popVerb},
	{Name: "next", Topic: cli.TopicConsumers, Verb: nextVerb},
	{Name: "ack", Topic: cli.TopicConsumers, Verb: ackVerb},

	{Name: "info", Topic: cli.TopicState, Verb: infoVerb},
	{Name: "why", Topic: cli.TopicState, Verb: whyVerb},
	{Name: "runs", Topic: cli.TopicState, Program: "thread-history", Summary: "Show which handlers run or wait, and how their runs ended"},
	{Name: "logs", Topic: cli.TopicState, Program: "thread-history", Summary: "Show what a handler printed, run by run"},
	{Name: "dead list", Topic: cli.TopicState, Verb: deadListVerb},
	{Name: "dead show", Topic: cli.TopicState, Verb: deadShowVerb},
	{Name: "dead retry", Topic: cli.TopicState, Verb: deadRetryVerb},
	{Name: "dead drop", Topic: cli.TopicState, Verb: deadDropVerb},
	{Name: "check", Topic: cli.TopicState, Verb: checkVerb},

	{Name: "unsubscribe", Topic: cli.TopicSteer, Verb: unsubscribeVerb},
	{Name: "seek", Topic: cli.TopicSteer, Verb: seekVerb},
	{Name: "pause", Topic: cli.TopicSteer, Verb: pauseVerb},
	{Name: "resume", Topic: cli.TopicSteer, Verb: resumeVerb},
	{Name: "dispatch", Topic: cli.TopicSteer, Verb: dispatchVerb},

	{Name: "ask", Topic: cli.TopicQuestions, Verb: askVerb},
	{Name: "stats", Topic: cli.TopicQuestions, Verb: statsVerb},
	{Name: "filter check", Topic: cli.TopicQuestions, Verb: filterCheckVerb},
	{Name: "filter test", Topic: cli.TopicQuestions, Verb: filterTestVerb},

	{Name: "schedule add", Topic: cli.TopicSchedule, Verb: scheduleAddVerb},
	{Name: "schedule list", Topic: cli.TopicSchedule, Verb: scheduleListVerb},
	{Name: "schedule cancel", Topic: cli.TopicSchedule, Verb: scheduleCancelVerb},
	{Name: "schedule remove", Topic: cli.TopicSchedule, Verb: scheduleRemoveVerb},

	{Name: "serve", Topic: cli.TopicServer, Program: "thread-serve", Summary: "Stay and run the handlers of many threads"},
	{Name: "top", Topic: cli.TopicServer, Program: "thread-serve", Summary: "Watch threads and their consumers on a terminal"},
	{Name: "mcp", Topic: cli.TopicServer, Program: "thread-serve", Summary: "Give an agent tools for threads, over stdio"},
	{Name: "lanes", Topic: cli.TopicServer, Program: "thread-serve", Summary: "Show the lanes of a thread serve, which must run"},
	{Name: "send", Topic: cli.TopicServer, Program: "thread-serve", Args: "<message>", Summary: "Send a message into a handler of a thread serve, which must run"},
	{Name: "abort", Topic: cli.TopicServer, Program: "thread-serve", Summary: "End a running handler of a thread serve, or all of a thread"},
	{Name: "wait", Topic: cli.TopicServer, Program: "thread-serve", Summary: "Wait for the end of a handler of a thread serve, or of all"},
	{Name: "token", Topic: cli.TopicServer, Program: "thread-serve", Args: "<command>", Summary: "Make, list and revoke tokens of the clients of thread serve"},
	{Name: "bench", Topic: cli.TopicUpkeep, Program: "thread-serve", Args: "<directory>", Summary: "Measure push, pop and wake-up on a disk"},

	{Name: "run", Topic: cli.TopicAgents, Program: "thread-history", Args: "<command>", Summary: "Start, queue, show and recover recorded runs"},
	{Name: "approve", Topic: cli.TopicAgents, Program: "thread-history", Args: "<run>", Summary: "Approve what a run waits for"},
	{Name: "deny", Topic: cli.TopicAgents, Program: "thread-history", Args: "<run>", Summary: "Deny what a run waits for"},
	{Name: "session", Topic: cli.TopicAgents, Program: "thread-history", Args: "<command>", Summary: "Start, list, show and delete sessions"},
	{Name: "message", Topic: cli.TopicAgents, Program: "thread-history", Args: "<command>", Summary: "Add and list the messages of a session"},
	{Name: "workspace", Topic: cli.TopicAgents, Program: "thread-history", Args: "<command>", Summary: "Describe the workspace of a thread"},
	{Name: "history", Topic: cli.TopicAgents, Program: "thread-history", Args: "<command>", Summary: "Follow, audit, prune and limit what is recorded"},

	{Name: "outbox", Topic: cli.TopicOutside, Program: "thread-outbox", Args: "<command>", Summary: "Store messages next to records, and hand them on"},
	{Name: "notifications", Topic: cli.TopicOutside, Program: "thread-outbox", Args: "[read id...]", Summary: "List a user's notifications, or mark some as read"},
	{Name: "dm", Topic: cli.TopicOutside, Program: "thread-outbox", Summary: "Send a direct message to a user or an agent"},
	{Name: "trigger", Topic: cli.TopicOutside, Program: "thread-bridge", Source: "install the package thread-bridge or thread-bridge-edge", Args: "<command>", Summary: "Store the messages of a broker's queue as events"},
	{Name: "publish", Topic: cli.TopicOutside, Program: "thread-bridge", Source: "install the package thread-bridge or thread-bridge-edge", Args: "<command>", Summary: "Publish a thread's events to a broker's queue"},

	{Name: "retain", Topic: cli.TopicUpkeep, Verb: retainVerb},
	{Name: "prune", Topic: cli.TopicUpkeep, Verb: pruneVerb},
	{Name: "compact", Topic: cli.TopicUpkeep, Verb: compactVerb},
	{Name: "backup", Topic: cli.TopicUpkeep, Program: "thread-history", Args: "<dir>", Summary: "Write a checked copy of a thread and its history"},
	{Name: "restore", Topic: cli.TopicUpkeep, Program: "thread-history", Args: "<dir>", Summary: "Make a thread of a backup"},
	{Name: "repair", Topic: cli.TopicUpkeep, Verb: repairVerb},

	{Name: "import", Topic: cli.TopicMove, Program: "thread-sqlite", Args: "<source>", Summary: "Take over a SQLite thread directory"},
	{Name: "export", Topic: cli.TopicMove, Program: "thread-sqlite", Summary: "Write a thread as a SQLite thread directory, or as text"},
	{Name: "mirror", Topic: cli.TopicMove, Program: "thread-sqlite", Summary: "Keep a SQLite copy of a thread up to date"},
	{Name: "completion", Topic: cli.TopicMove, Verb: completionVerb},
}
