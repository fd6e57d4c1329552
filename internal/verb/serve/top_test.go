package serve

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/jsonform"
	"thread/internal/page"
)

// crowd is n threads with a consumer each, of which the last one's is in trouble.
func crowd(n int) (all []page.Seen) {
	for i := range n {
		s := page.Seen{Dir: fmt.Sprintf("/threads/t%02d", i), Info: engine.Info{EventCount: int64(i)}}
		s.Consumers = []jsonform.ConsumerState{{ConsumerInfo: engine.ConsumerInfo{Subscription: engine.Subscription{Consumer: fmt.Sprintf("c%02d", i)}}}}
		all = append(all, s)
	}
	all[n-1].Consumers[0].Dead = 3
	return all
}

// shown returns the lines of a frame without what steers a terminal.
func shown(frame string) []string {
	for _, s := range []string{home, restOfLine, restBelow, plainText, styles[topTitle], styles[topHeader], styles[topTrouble]} {
		frame = strings.ReplaceAll(frame, s, "")
	}
	return strings.Split(frame, "\r\n")
}

// TestTopScreen: a frame is as large as the terminal, what is in trouble stands first,
// and the keys reach every row and no further.
func TestTopScreen(t *testing.T) {
	now := time.Now()
	s := topScreen{colour: true}
	lines := shown(s.frame(crowd(30), now, 40, 10))
	if len(lines) != 10 || lines[3] != "t29"+strings.Repeat(" ", 21)+"29 events" && !strings.HasPrefix(lines[3], "t29 ") || !strings.HasPrefix(lines[4], "  c29 ") {
		t.Fatalf("%q", lines)
	}
	seen := map[string]bool{}
	for range 60 {
		for _, line := range shown(s.frame(crowd(30), now, 40, 10))[topHead:] {
			seen[strings.TrimSpace(strings.SplitN(strings.TrimSpace(line), " ", 2)[0])] = true
		}
		s.press('j')
	}
	if len(seen) != 60 {
		t.Errorf("%d rows were reached", len(seen))
	}
	if lines = shown(s.frame(crowd(30), now, 40, 10)); !strings.HasPrefix(lines[9], "  c28 ") {
		t.Errorf("past the end: %q", lines)
	}
	for range 20 {
		s.press('b')
		s.frame(crowd(30), now, 40, 10)
	}
	if s.first != 0 {
		t.Errorf("before the beginning: %d", s.first)
	}
	for _, size := range [][2]int{{1, 1}, {8, 2}, {20, 4}, {300, 200}} {
		if lines = shown(s.frame(crowd(30), now, size[0], size[1])); len(lines) > size[1] {
			t.Errorf("%d lines for %d", len(lines), size[1])
		}
	}
	if !s.press('q') || !s.press(ctrlC) || s.press('x') {
		t.Error("which keys end it")
	}
}

// TestTopHostile: what others have stored does not steer the terminal.
func TestTopHostile(t *testing.T) {
	const evil = "\x1b]0;x\x07\u202e\n"
	all := crowd(3)
	all[0].Dir = "/threads/" + evil
	all[0].Pushed = evil
	all[1].Err = errors.New(evil)
	c := &all[2].Consumers[0]
	c.Consumer, c.Failing, c.LastError = evil, 1, evil
	s := topScreen{}
	frame := s.frame(all, time.Now(), 200, 50)
	for _, bad := range []string{"\x1b]", "\x07", "\u202e"} {
		if strings.Contains(frame, bad) {
			t.Errorf("%q in %q", bad, frame)
		}
	}
	if n := strings.Count(frame, `\x1b]0;x\x07`); n < 4 {
		t.Errorf("%d of the texts are shown: %q", n, frame)
	}
	if strings.Contains(frame, styles[topTrouble]) {
		t.Error("coloured with NO_COLOR")
	}
}
