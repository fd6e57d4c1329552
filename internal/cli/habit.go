package cli

import (
	"errors"
	"io/fs"
	"os"
)

// changeDirectory takes -C DIR, which may come several times, from the front of args
// and makes DIR the working directory, as git and make do.
func changeDirectory(args []string) ([]string, error) {
	for len(args) > 0 && args[0] == "-C" {
		if len(args) == 1 || args[1] == "" {
			return nil, UsageError("-C has no directory", "name one, before the command")
		}
		if err := os.Chdir(args[1]); err != nil {
			if at := (*fs.PathError)(nil); errors.As(err, &at) {
				err = at.Err
			}
			return nil, LogicError("cannot change to "+args[1]+": "+err.Error(), "name a directory that is there")
		}
		args = args[2:]
	}
	return args, nil
}

// habit says what the word of another program's command is called here, "" when it is
// none that is known.
func habit(word string) string {
	switch word {
	case "ls", "list", "ps":
		return "thread peek lists events, thread info consumers, thread schedule list what is planned."
	case "log", "show", "cat":
		return "thread peek shows events, thread tail -f follows them, thread logs what handlers printed."
	case "status", "stat":
		return "thread info shows the consumers and what they wait for."
	case "rm", "delete", "del":
		return "thread prune drops old events, thread unsubscribe a consumer, thread dead drop dead letters."
	case "add", "enqueue", "pub":
		return "thread push stores an event."
	case "sub", "watch":
		return "thread subscribe runs a command for new events, thread tail -f shows them."
	case "get", "receive":
		return "thread next gives a consumer its next events, thread consume hands them to a command."
	case "retry", "requeue":
		return "thread dead retry sends dead letters back."
	}
	return ""
}
