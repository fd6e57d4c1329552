package survive

import (
	"bufio"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

// The soak of conversations. Its handler is this program, which writes to a log what it
// does, so that nothing but the log says what was delivered:
//
//	b KEY ID        it has got an event
//	e KEY ID ok|no  it is done with it, and says so next
//	k KEY ID        it kills itself

// handlerLog is where the handler writes, and what makes this program one.
const handlerLog = "SURVIVE_HANDLER_LOG"

// handle is the handler: a worker, or with THREAD_EVENT_ID a command for one event.
func handle() int {
	log, err := os.OpenFile(os.Getenv(handlerLog), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 1
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0
		}
		_, after, _ := strings.Cut(line, `"id":`)
		id, _, _ := strings.Cut(after, ",")
		_, after, _ = strings.Cut(line, `"source":"`)
		key, _, _ := strings.Cut(after, `"`)
		write := func(what, more string) { // at once, so that lines of others do not come in between
			if _, err := log.WriteString(what + " " + key + " " + id + more + "\n"); err != nil {
				os.Exit(1)
			}
		}
		die := func() {
			write("k", "")
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				_ = self.Kill()
			}
			select {}
		}
		fate := rand.IntN(1000)
		write("b", "")
		if fate == 0 {
			die()
		}
		work := time.Duration(rand.IntN(500)) * time.Microsecond
		if fate%40 == 7 { // a slow one: others are settled above it
			work = 30 * time.Millisecond
		}
		time.Sleep(work)
		ok := fate < 900
		write("e", map[bool]string{true: " ok", false: " no"}[ok])
		if fate == 1 {
			die()
		}
		answer := `{"id":` + id + `,"ok":true}`
		switch {
		case os.Getenv("THREAD_EVENT_ID") != "" && ok:
			return 0
		case os.Getenv("THREAD_EVENT_ID") != "":
			return 1
		case fate == 2:
			answer = answer[:7] // it dies in the middle of a line
		case !ok && fate%2 == 0:
			answer = `{"id":` + id + `,"error":"not today"}`
		case !ok:
			answer = `{"id":` + id + `,"delay":"1ms"}`
		}
		if fate == 2 {
			os.Stdout.WriteString(answer)
			die()
		}
		if _, err := os.Stdout.WriteString(answer + "\n"); err != nil {
			return 0
		}
	}
}
