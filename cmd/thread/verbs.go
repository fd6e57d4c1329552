package main

// verb is one entry of the command line.
type verb struct {
	name     string // one word, or two for a verb within a group
	args     string // the positional argument as shown in the usage line
	summary  string // one line, for the overview
	details  string // what the help says beyond the summary; may be empty
	examples string // lines of the Examples block
	grammar  func() command
}

// verbs returns every verb in the order of the overview. Each verb's entry
// stands in that verb's file.
func verbs() []*verb {
	return []*verb{
		initVerb(), pushVerb(), popVerb(), ackVerb(), seekVerb(), peekVerb(), tailVerb(), subscribeVerb(),
		unsubscribeVerb(), pauseVerb(), resumeVerb(), consumeVerb(), deadListVerb(), deadShowVerb(),
		deadRetryVerb(), deadDropVerb(), infoVerb(), whyVerb(), dispatchVerb(), filterCheckVerb(), filterTestVerb(),
		importVerb(), exportVerb(), mirrorVerb(),
		checkVerb(), repairVerb(), compactVerb(), pruneVerb(),
		serveVerb(), scheduleAddVerb(), scheduleListVerb(), scheduleRemoveVerb(),
		runsVerb(), lanesVerb(), sendVerb(), abortVerb(), waitVerb(),
		completionVerb(),
	}
}

// groupOf returns the verbs whose first word is group, nil for any other word.
func groupOf(group string) []*verb {
	switch group {
	case "filter":
		return []*verb{filterCheckVerb(), filterTestVerb()}
	case "dead":
		return []*verb{deadListVerb(), deadShowVerb(), deadRetryVerb(), deadDropVerb()}
	case "schedule":
		return []*verb{scheduleAddVerb(), scheduleListVerb(), scheduleRemoveVerb()}
	}
	return nil
}

// lookup finds the verb that args begin with and returns it with the remaining
// args, or nil. Only the named verb is built.
func lookup(args []string) (*verb, []string) {
	var entry func() *verb
	switch args[0] {
	case "init":
		entry = initVerb
	case "push":
		entry = pushVerb
	case "pop":
		entry = popVerb
	case "ack":
		entry = ackVerb
	case "seek":
		entry = seekVerb
	case "peek":
		entry = peekVerb
	case "tail":
		entry = tailVerb
	case "pause":
		entry = pauseVerb
	case "resume":
		entry = resumeVerb
	case "consume":
		entry = consumeVerb
	case "dead":
		if len(args) < 2 {
			return nil, nil
		}
		switch args[1] {
		case "list":
			return deadListVerb(), args[2:]
		case "show":
			return deadShowVerb(), args[2:]
		case "retry":
			return deadRetryVerb(), args[2:]
		case "drop":
			return deadDropVerb(), args[2:]
		}
		return nil, nil
	case "subscribe":
		entry = subscribeVerb
	case "unsubscribe":
		entry = unsubscribeVerb
	case "info":
		entry = infoVerb
	case "why":
		entry = whyVerb
	case "dispatch":
		entry = dispatchVerb
	case "completion":
		entry = completionVerb
	case "import":
		entry = importVerb
	case "export":
		entry = exportVerb
	case "mirror":
		entry = mirrorVerb
	case "check":
		entry = checkVerb
	case "repair":
		entry = repairVerb
	case "compact":
		entry = compactVerb
	case "prune":
		entry = pruneVerb
	case "serve":
		entry = serveVerb
	case "runs":
		entry = runsVerb
	case "lanes":
		entry = lanesVerb
	case "send":
		entry = sendVerb
	case "abort":
		entry = abortVerb
	case "wait":
		entry = waitVerb
	case "schedule":
		if len(args) < 2 {
			return nil, nil
		}
		switch args[1] {
		case "add":
			return scheduleAddVerb(), args[2:]
		case "list":
			return scheduleListVerb(), args[2:]
		case "remove":
			return scheduleRemoveVerb(), args[2:]
		}
		return nil, nil
	case "filter":
		if len(args) < 2 {
			return nil, nil
		}
		switch args[1] {
		case "check":
			return filterCheckVerb(), args[2:]
		case "test":
			return filterTestVerb(), args[2:]
		}
		return nil, nil
	default:
		return nil, nil
	}
	return entry(), args[1:]
}
