// Package core has the verbs of thread itself, one file each. What a verb does lives in
// the packages below.
package core

import "thread/internal/cli"

// Verbs are the verbs of thread itself, and those that it runs another program
// for, in the order of the overview.
var Verbs = []cli.Entry{
	{Name: "init", Build: initVerb},
	{Name: "push", Build: pushVerb},
	{Name: "pop", Build: popVerb},
	{Name: "ack", Build: ackVerb},
	{Name: "seek", Build: seekVerb},
	{Name: "peek", Build: peekVerb},
	{Name: "tail", Build: tailVerb},
	{Name: "subscribe", Build: subscribeVerb},
	{Name: "unsubscribe", Build: unsubscribeVerb},
	{Name: "pause", Build: pauseVerb},
	{Name: "resume", Build: resumeVerb},
	{Name: "consume", Build: consumeVerb},
	{Name: "dead list", Build: deadListVerb},
	{Name: "dead show", Build: deadShowVerb},
	{Name: "dead retry", Build: deadRetryVerb},
	{Name: "dead drop", Build: deadDropVerb},
	{Name: "info", Build: infoVerb},
	{Name: "why", Build: whyVerb},
	{Name: "dispatch", Build: dispatchVerb},
	{Name: "filter check", Build: filterCheckVerb},
	{Name: "filter test", Build: filterTestVerb},
	{Name: "import", Program: "thread-sqlite", Args: "<source>", Summary: "Take over a SQLite thread directory"},
	{Name: "export", Program: "thread-sqlite", Summary: "Write a thread as a SQLite thread directory, or as text"},
	{Name: "mirror", Program: "thread-sqlite", Summary: "Keep a SQLite copy of a thread up to date"},
	{Name: "check", Build: checkVerb},
	{Name: "repair", Build: repairVerb},
	{Name: "compact", Build: compactVerb},
	{Name: "prune", Build: pruneVerb},
	{Name: "serve", Program: "thread-serve", Summary: "Stay and run the handlers of many threads"},
	{Name: "schedule add", Build: scheduleAddVerb},
	{Name: "schedule list", Build: scheduleListVerb},
	{Name: "schedule remove", Build: scheduleRemoveVerb},
	{Name: "runs", Program: "thread-serve", Summary: "Show which handlers run or wait under thread serve"},
	{Name: "lanes", Program: "thread-serve", Summary: "Show the lanes of thread serve"},
	{Name: "send", Program: "thread-serve", Args: "<message>", Summary: "Send a message into a running handler"},
	{Name: "abort", Program: "thread-serve", Summary: "End a running handler"},
	{Name: "wait", Program: "thread-serve", Summary: "Wait for the end of a running handler"},
	{Name: "trigger", Program: "thread-bridge", Package: "thread-bridge", Args: "<verb>", Summary: "Store the messages of a broker's queue as events"},
	{Name: "publish", Program: "thread-bridge", Package: "thread-bridge", Args: "<verb>", Summary: "Publish a thread's events to a broker's queue"},
	{Name: "completion", Build: completionVerb},
}
