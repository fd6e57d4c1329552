package pgmirror

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/history"
	"thread/internal/historymirror/mirrortest"
	"thread/net/pgstore"
)

// TestMain is also the program that tests kill: with MIRROR_DIR set it mirrors, says on
// stdout when it has reached the place that MIRROR_KILL_AT counts, and waits there for its
// death.
func TestMain(m *testing.M) {
	dir := os.Getenv("MIRROR_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	at, _ := strconv.Atoi(os.Getenv("MIRROR_KILL_AT"))
	n := 0
	Reached = func(place string) {
		if n++; n == at {
			fmt.Fprintln(os.Stdout, "reached", place) // for the test that started it
			time.Sleep(time.Hour)                     // a deadlock would end the program
		}
	}
	if err := mirror(dir, os.Getenv("MIRROR_URL")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// mirror syncs once, with few history events in a batch.
func mirror(dir, url string) (err error) {
	ctx := context.Background()
	h, err := history.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	config, schema, err := pgstore.ParseSchema(url, "")
	if err != nil {
		return err
	}
	m, err := Open(ctx, h, config, schema, nil)
	if err != nil {
		return err
	}
	m.m.Page = 5
	_, err = m.Sync(ctx)
	return errors.Join(err, m.Close())
}

// TestKilledMirror is H-17: wherever a mirror is killed, what is in the tables is what its
// cursor says, and the next one makes them the history's.
func TestKilledMirror(t *testing.T) {
	d := newDatabase(t)
	dir := t.TempDir() + "/inbox"
	h := mirrortest.NewHistory(t, dir)
	defer h.Close()
	mirrortest.Fill(t, h, "one", "")
	places := map[string]int{}
	for n := 1; ; n++ {
		d.clear(t)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "MIRROR_DIR="+dir, "MIRROR_URL="+d.url, fmt.Sprint("MIRROR_KILL_AT=", n))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		line, _ := bufio.NewReader(out).ReadString('\n')
		place, killed := strings.CutPrefix(strings.TrimSpace(line), "reached ")
		if killed {
			must(t, cmd.Process.Kill())
		}
		if err := cmd.Wait(); (err != nil) != killed {
			t.Fatalf("%s: %v", line, err)
		}
		d.settle(t, 0)
		if d.has(t) {
			behind := d.in(t, `SELECT count(*) FROM thread_mirror m LEFT JOIN mirror_state s ON true
WHERE m.last_event_id <> coalesce(s.last_event_id, 0) OR (m.last_event_id > 0) <> EXISTS (SELECT FROM sessions)`)
			if behind[0][0] != "0" {
				t.Errorf("killed at %s (%d): the tables are not what the cursor says", place, n)
			}
		}
		if rebuilt := d.sync(t, h); rebuilt != "" {
			t.Errorf("killed at %s (%d): %s", place, n, rebuilt)
		}
		d.sameAsTruth(t, h, anyWorkspace)
		if !killed {
			break
		}
		places[place]++
	}
	head, err := h.Head(context.Background())
	must(t, err)
	batches := int(head+4) / 5
	for _, place := range []string{"read", "locked", "written", "stored"} {
		if batches < 3 || places[place] != batches {
			t.Errorf("%d deaths at %s, want %d", places[place], place, batches)
		}
	}
	if places["connected"] != 1 || places["made"] != 1 {
		t.Errorf("deaths at %v", places)
	}
}

// TestFollow is H-12 and H-17: what is written is in the tables soon after, also after the
// connection was cut, and after the schema was dropped.
func TestFollow(t *testing.T) {
	d := newDatabase(t)
	h := mirrortest.NewHistory(t, t.TempDir()+"/inbox")
	defer h.Close()
	m := d.open(t, h)
	defer m.Close()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	steps := []func(){
		func() {},
		func() {
			d.ask(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '`+d.schema+`'`)
			d.settle(t, 0)
		},
		func() { d.ask(t, `SET client_min_messages = error; DROP SCHEMA `+d.schema+` CASCADE`) },
	}
	done := 0
	next := func() {
		steps[done]()
		mirrortest.Fill(t, h, fmt.Sprint("session ", done), "")
	}
	err := m.Follow(ctx, func(_ int64, err error) error {
		switch {
		case err != nil:
			return err // it connects again by itself
		case done == 0:
			next()
			done++
		case len(d.mirrored(t)) == 9*done+1:
			d.sameAsTruth(t, h, anyWorkspace)
			if done == len(steps) {
				stop()
				return nil
			}
			next()
			done++
		}
		return nil
	})
	if err != nil || done != len(steps) || len(d.mirrored(t)) != 9*done+1 {
		t.Errorf("%d of %d steps, %v", done, len(steps), err)
	}
}

// quickly sets how many checks a property gets unless a flag says so.
func quickly(t *testing.T, n int) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() == checks.DefValue {
		must(t, checks.Value.Set(strconv.Itoa(n)))
		t.Cleanup(func() { must(t, checks.Value.Set(checks.DefValue)) })
	}
}
