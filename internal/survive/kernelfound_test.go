//go:build linux

package survive

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// told is what the machine has acknowledged on its console. The last line can be torn.
type told struct {
	stored         []ackedRange
	acked          int64
	saved          string // the newest backup, "" for none
	newest         int64  // id in the thread that drops events
	messages, runs []string
}

type ackedRange struct {
	first, last int64
	content     string
}

func (m *told) store(rest string) {
	var s ackedRange
	first, rest, _ := strings.Cut(rest, " ")
	last, content, ok := strings.Cut(rest, " ")
	s.first, _ = strconv.ParseInt(first, 10, 64)
	s.last, _ = strconv.ParseInt(last, 10, 64)
	s.content = content
	if ok && s.first > 0 && s.last >= s.first {
		m.stored = append(m.stored, s)
	}
}

func (m *told) add(word, rest string) bool {
	number, _ := strconv.ParseInt(rest, 10, 64)
	switch word {
	case "ACKED":
		m.acked = max(m.acked, number)
	case "SAVED":
		if len(rest) == 6 {
			m.saved = rest
		}
	case "LIMITED":
		m.newest = max(m.newest, number)
	case "MESSAGE":
		m.messages = append(m.messages, rest)
	case "ENDED":
		m.runs = append(m.runs, rest)
	default:
		return false
	}
	return true
}

// found is what the machine has found on its disk; see guest/main_test.go.
type found struct {
	Events []struct {
		ID      int64
		Content string
	}
	Acked          int64
	Backup         string
	Limited        []int64
	Messages, Runs []string
}

// whole is what the content of an event must look like.
var whole = regexp.MustCompile(`^(boot \d+ push \d+ x*|after the cut)$`)

// look boots the machine once more, for what the last cut has left.
func (m *machine) look(t *testing.T, n int) {
	t.Helper()
	cmd, console := m.boot(t, "WORK=check", fmt.Sprintf("BOOT=%d", n))
	limit := time.AfterFunc(bootLimit, func() { cut(cmd) })
	out, err := io.ReadAll(console)
	limit.Stop()
	cut(cmd)
	cmd.Wait()
	if err != nil || !strings.Contains(string(out), "CHECKED") {
		t.Fatalf("cut %d: the thread cannot be used: %s%v", n-1, out, err)
	}
	m.verify(t, n-1)
}

// verify compares what the machine has found with what it had acknowledged before a cut.
func (m *machine) verify(t *testing.T, n int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.root, "found"))
	if err != nil {
		t.Fatal(err)
	}
	f := found{}
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatalf("cut %d: %v", n, err)
	}
	m.found = f
	for i, e := range f.Events {
		if e.ID != int64(i+1) || !whole.MatchString(e.Content) {
			t.Fatalf("cut %d: event %d of %d is %.200q", n, e.ID, i+1, e.Content)
		}
	}
	for i, s := range m.told.stored {
		for id := s.first; id <= s.last; id++ {
			got := ""
			if id <= int64(len(f.Events)) {
				got = f.Events[id-1].Content
			}
			if got != s.content && (i < len(m.told.stored)-1 || !strings.HasPrefix(got, s.content)) {
				t.Fatalf("cut %d: event %d was acknowledged as %.100q and is %.100q", n, id, s.content, got)
			}
		}
	}
	if f.Acked < m.told.acked {
		t.Fatalf("cut %d: event %d was acked, %d is found", n, m.told.acked, f.Acked)
	}
	if f.Backup < m.told.saved {
		t.Fatalf("cut %d: backup %s was written, the newest is %q", n, m.told.saved, f.Backup)
	}
	lost := slices.Concat(missing(m.told.messages, f.Messages), missing(m.told.runs, f.Runs))
	if len(lost) > 0 {
		t.Fatalf("cut %d: acknowledged in the history and lost: %q", n, lost)
	}
	m.verifyLimited(t, n)
}

// missing returns what is told and not found, except for a torn last one.
func missing(told, found []string) (lost []string) {
	there := map[string]bool{}
	for _, name := range found {
		there[name] = true
	}
	for i, name := range told {
		torn := i == len(told)-1 && slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, name) })
		if !there[name] && !torn {
			lost = append(lost, name)
		}
	}
	return lost
}

// verifyLimited: what limits leave are the newest events, as many as they say, and perhaps
// the events of two batches more, one for each cut before which they could not be kept.
func (m *machine) verifyLimited(t *testing.T, n int) {
	t.Helper()
	ids := m.found.Limited
	for i, id := range ids {
		if i > 0 && id != ids[i-1]+1 {
			t.Fatalf("cut %d: the event after %d is %d", n, ids[i-1], id)
		}
	}
	if m.told.newest == 0 {
		return
	}
	if len(ids) == 0 || ids[len(ids)-1] < m.told.newest || len(ids) < int(min(ids[len(ids)-1], 175)) || len(ids) > 200+2*60 {
		t.Fatalf("cut %d: %d events are left, up to %v, and %d was acknowledged", n, len(ids), ids, m.told.newest)
	}
}
