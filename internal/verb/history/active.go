package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/steer"
)

// activeRun is a consumer that is on its way, as docs/reference/serve.md has it.
type activeRun struct {
	Consumer string    `json:"consumer_id"`
	Event    int64     `json:"event_id"` // the first one of a delivery, 0 for a handler
	Key      *string   `json:"key"`      // of the delivery, if it has one
	State    string    `json:"state"`
	Lane     string    `json:"lane"`
	Since    time.Time `json:"since"`
	RunID    string    `json:"run_id"`
	PID      int       `json:"pid"`
	Activity string    `json:"activity"`
	RetryAt  time.Time `json:"retry_at,omitzero"`
}

// activeRuns asks the server of the thread, and where there is none, the directory. With
// a key it is only deliveries, of which only a server knows: an error where there is none.
func activeRuns(ctx context.Context, t *engine.Thread, key *string) ([]activeRun, error) {
	list, err := askServers(ctx, t, key)
	if !errors.Is(err, errNoServer) {
		return list, err
	}
	if key != nil {
		return nil, cli.LogicError("no thread serve runs for "+t.Address()+", and only that knows of deliveries", "start one with thread serve --thread "+cli.ShellWord(t.Address())+", or leave out --key")
	}
	known, err := dispatch.Active(ctx, t)
	list = nil
	for i := range known {
		k := &known[i]
		r := activeRun{Consumer: k.Consumer, State: "waiting", Since: k.Since, RetryAt: k.RetryAt}
		if k.Running {
			r = activeRun{Consumer: k.Consumer, State: "running", Since: k.Since, RunID: k.RunID, PID: k.PID}
		}
		list = append(list, r)
	}
	return list, err
}

var errNoServer = errors.New("no process serves the thread")

// answerTime bounds the wait for a server, which may be stopped.
const answerTime = 15 * time.Second

// askServers is askServer, or for a thread on a server all hosts that serve it.
func askServers(ctx context.Context, t *engine.Thread, key *string) (list []activeRun, err error) {
	if t.URL() == "" {
		return askServer(t.Dir(), key)
	}
	q, err := json.Marshal(runsRequest{"runs", key})
	if err != nil {
		return nil, err
	}
	err = steer.Ask(ctx, t, q, answerTime, func(text []byte) bool {
		var answer runsAnswer
		if json.Unmarshal(text, &answer) == nil {
			list = append(list, answer.Runs...)
		}
		return false
	})
	switch {
	case errors.Is(err, steer.ErrNobody):
		err = errNoServer
	case errors.Is(err, steer.ErrSilent):
		err = cli.LogicError(fmt.Sprintf("thread serve does not answer within %v", answerTime), "see its log, and whether it is stopped")
	}
	slices.SortStableFunc(list, func(a, b activeRun) int { return strings.Compare(a.Consumer, b.Consumer) })
	return list, err
}

type runsRequest struct {
	Op  string  `json:"op"`
	Key *string `json:"key,omitempty"`
}

type runsAnswer struct {
	Error string      `json:"error"`
	Runs  []activeRun `json:"runs"`
}

// askServer asks for the runs that a server knows of.
func askServer(dir string, key *string) ([]activeRun, error) {
	address, done, err := dispatch.SocketAddress(filepath.Join(dir, "run"), ".control")
	if err != nil {
		return nil, errNoServer // it has no socket there either
	}
	defer done()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: address, Net: "unix"})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, errNoServer
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, err
	}
	q, err := json.Marshal(runsRequest{"runs", key})
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(q, '\n')); err != nil {
		return nil, errNoServer // it ended
	}
	var answer runsAnswer
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			return nil, cli.LogicError(fmt.Sprintf("thread serve does not answer within %v", answerTime), "see its log, and whether it is stopped")
		}
		return nil, errNoServer
	}
	if answer.Error != "" {
		return nil, cli.LogicError(answer.Error, "see the log of thread serve")
	}
	return answer.Runs, nil
}
