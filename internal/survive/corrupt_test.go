package survive

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"thread/jsonlog"
)

const pageBytes = 4096

// damage is one way to spoil the files of a directory. older is the database as
// it was a while before. It says what it did.
type damage struct {
	name string
	do   func(r *rand.Rand, db, older []byte) ([]byte, string)

	journal bool // not of events.db, but of events.journal
}

func page(b []byte, i int) []byte { return b[i*pageBytes : (i+1)*pageBytes] }

func pages(b []byte) int { return len(b) / pageBytes }

var damages = []damage{
	{name: "a record of the journal that is not the last", journal: true, do: func(r *rand.Rand, journal, _ []byte) ([]byte, string) {
		slot := r.IntN(2)
		at, bit := slot*pageBytes+r.IntN(32), r.IntN(8)
		journal[at] ^= 1 << bit
		return journal, fmt.Sprintf("byte %d bit %d", at, bit)
	}},
	{name: "a journal that is cut", journal: true, do: func(r *rand.Rand, journal, _ []byte) ([]byte, string) {
		n := r.IntN(2 * pageBytes)
		return journal[:n], fmt.Sprintf("to %d bytes", n)
	}},
	{name: "one bit", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		at, bit := r.IntN(len(db)), r.IntN(8)
		db[at] ^= 1 << bit
		return db, fmt.Sprintf("byte %d bit %d", at, bit)
	}},
	{name: "one bit near the start of a page", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		at, bit := r.IntN(pages(db))*pageBytes+r.IntN(160), r.IntN(8)
		db[at] ^= 1 << bit
		return db, fmt.Sprintf("byte %d bit %d", at, bit)
	}},
	{name: "meta page", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		i, at, bit := r.IntN(2), 16+r.IntN(64), r.IntN(8)
		if r.IntN(8) == 0 {
			clear(page(db, i))
			return db, fmt.Sprintf("%d zeroed", i)
		}
		page(db, i)[at] ^= 1 << bit
		return db, fmt.Sprintf("%d, byte %d bit %d", i, at, bit)
	}},
	{name: "letter of a small content", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		all := regexp.MustCompile("some content").FindAllIndex(db, -1)
		at := all[r.IntN(len(all))][0]
		db[at] ^= 1
		return db, fmt.Sprintf("byte %d of %d places", at, len(all))
	}},
	{name: "random bytes", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		at := r.IntN(len(db))
		n := min(1+r.IntN(600), len(db)-at)
		for i := range n {
			db[at+i] = byte(r.Uint32())
		}
		return db, fmt.Sprintf("bytes [%d, %d)", at, at+n)
	}},
	{name: "cut", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		n := r.IntN(len(db))
		return db[:n], fmt.Sprintf("to %d bytes", n)
	}},
	{name: "zeroed page", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		i := r.IntN(pages(db))
		clear(page(db, i))
		return db, fmt.Sprintf("page %d", i)
	}},
	{name: "zeroed sector", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		i := r.IntN(len(db) / 512)
		clear(db[i*512 : (i+1)*512])
		return db, fmt.Sprintf("sector %d", i)
	}},
	{name: "swapped pages", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		i, j := r.IntN(pages(db)), r.IntN(pages(db))
		was := bytes.Clone(page(db, i))
		copy(page(db, i), page(db, j))
		copy(page(db, j), was)
		return db, fmt.Sprintf("%d and %d", i, j)
	}},
	{name: "copied page", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		i, j := r.IntN(pages(db)), r.IntN(pages(db))
		copy(page(db, i), page(db, j))
		return db, fmt.Sprintf("%d to %d", j, i)
	}},
	{name: "copied page with its new number", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		i, j := r.IntN(pages(db)), r.IntN(pages(db))
		copy(page(db, i), page(db, j))
		binary.NativeEndian.PutUint64(page(db, i), uint64(i))
		return db, fmt.Sprintf("%d to %d", j, i)
	}},
	{name: "old page", do: func(r *rand.Rand, db, older []byte) ([]byte, string) {
		i := r.IntN(pages(older))
		copy(page(db, i), page(older, i))
		return db, fmt.Sprintf("page %d", i)
	}},
	{name: "old pages", do: func(r *rand.Rand, db, older []byte) ([]byte, string) {
		from := r.IntN(pages(older))
		to := from + 1 + r.IntN(pages(older)-from)
		copy(db[from*pageBytes:to*pageBytes], older[from*pageBytes:])
		return db, fmt.Sprintf("pages [%d, %d)", from, to)
	}},
	{name: "child of a branch", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		all := branches(db)
		i := all[r.IntN(len(all))]
		return turn(db, i, r.IntN(children(db, i)), all[r.IntN(len(all))]) // a loop, or another tree
	}},
	{name: "last child of a branch", do: func(r *rand.Rand, db, _ []byte) ([]byte, string) {
		all := branches(db)
		i := all[r.IntN(len(all))]
		return turn(db, i, children(db, i)-1, i) // a loop on the way of what is appended
	}},
}

// branches are the pages of keys and children.
func branches(db []byte) (list []int) {
	for i := 2; i < pages(db); i++ {
		if g := page(db, i); binary.NativeEndian.Uint16(g[8:]) == 1 && binary.NativeEndian.Uint64(g) == uint64(i) {
			list = append(list, i)
		}
	}
	return list
}

func children(db []byte, branch int) int {
	return int(binary.NativeEndian.Uint16(page(db, branch)[10:]))
}

// turn makes a page the child of a branch, in place of the one that it has there.
func turn(db []byte, branch, child, to int) (spoiled []byte, what string) {
	binary.NativeEndian.PutUint64(page(db, branch)[16+child*16+8:], uint64(to))
	return db, fmt.Sprintf("element %d of page %d to %d", child, branch, to)
}

// TestDamage spoils a directory in random ways. Whatever was done, no command may
// crash or hang, and what it prints with exit code 0 must be right.
func TestDamage(t *testing.T) {
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	if sample {
		rounds = 40
	}
	if full {
		rounds = 200
	}
	base := filepath.Join(t.TempDir(), "base")
	fresh(t, base)
	withLetters(t, base)
	thread(t, batch(2000, strings.Repeat("some content ", 8)), "push", "--thread", base, "--batch")
	older, err := os.ReadFile(filepath.Join(base, "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	thread(t, batch(400, strings.Repeat("some content ", 8)), "push", "--thread", base, "--batch")
	// Large contents are kept in separate pages, about as many as all others have.
	thread(t, batch(12, strings.Repeat("a large content ", 2500)), "push", "--thread", base, "--batch")
	for range 3 {
		thread(t, "", "push", "--thread", base, "--source", "self", "--type", "message", "--content", "last")
	}
	want := lines(thread(t, "", "peek", "--thread", base, "--last-event-id", "0", "--limit", "100000"))
	db, err := os.ReadFile(filepath.Join(base, "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	journal, err := os.ReadFile(filepath.Join(base, "events.journal"))
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan tally, len(damages))
	t.Run("kinds", func(t *testing.T) {
		for k, d := range damages {
			t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				var sum tally
				dir := filepath.Join(t.TempDir(), "thread")
				copyDir(t, base, dir)
				jsonl, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
				if err != nil {
					t.Fatal(err)
				}
				for n := range rounds {
					r := rand.New(rand.NewPCG(uint64(k), uint64(n)))
					spoiled, log := bytes.Clone(db), bytes.Clone(journal)
					var what string
					if d.journal {
						log, what = d.do(r, log, nil)
					} else {
						spoiled, what = d.do(r, spoiled, older)
					}
					for name, data := range map[string][]byte{"events.db": spoiled, "events.journal": log, "events.jsonl": jsonl} {
						if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
							t.Fatal(err)
						}
					}
					if n%2 == 1 { // no line tells what the database lost
						if err := os.Remove(filepath.Join(dir, "events.jsonl")); err != nil {
							t.Fatal(err)
						}
						what += ", without events.jsonl"
					}
					v := victim{t: t, dir: dir, want: want, same: bytes.Equal(spoiled, db) && !d.journal, older: strings.HasPrefix(d.name, "old page") || bothMetasDiffer(spoiled, db)}
					if err := v.examine(&sum); err != nil {
						t.Errorf("round %d, %s: %v", n, what, err)
					}
				}
				results <- sum
			})
		}
	})
	close(results)
	var sum tally
	for s := range results {
		sum.add(s)
	}
	t.Logf("%d damages: %d were named by a command, %d by check alone, %d did not matter; repair saved all in %d and named what was lost in %d",
		sum.tried, sum.reported, sum.checked, sum.harmless, sum.saved, sum.lost)
}

// withLetters adds that many dead letters and dedupe keys that their buckets are
// trees of several pages.
func withLetters(t *testing.T, dir string) {
	t.Helper()
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, `{"source":"s","type":"t","content":"%d","dedupe_key":"key %d"}`+"\n", i, i)
	}
	thread(t, b.String(), "push", "--thread", dir, "--batch")
	thread(t, "", "subscribe", "--thread", dir, "--consumer", "broken", "--handler", "true", "--filter", "id < 90")
	thread(t, "", "consume", "--thread", dir, "--consumer", "broken", "--", "sh", "-c", "exit 65")
}

type tally struct{ tried, reported, checked, harmless, saved, lost int }

func (a *tally) add(b tally) {
	a.tried += b.tried
	a.reported += b.reported
	a.checked += b.checked
	a.harmless += b.harmless
	a.saved += b.saved
	a.lost += b.lost
}

func lines(text string) []string {
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// victim is a damaged directory.
type victim struct {
	t    *testing.T
	dir  string
	want []string // its events, as they should be
	same bool     // nothing was damaged

	// Pages were exchanged for older ones, or both meta pages for something else. An
	// older page has sound checksums, so that the newest events can be missing
	// without a command that meets a fault; check must name it.
	older bool
}

func bothMetasDiffer(a, b []byte) bool {
	return len(a) < 2*pageBytes || !bytes.Equal(page(a, 0), page(b, 0)) && !bytes.Equal(page(a, 1), page(b, 1))
}

// command runs one command on the directory. It may succeed or refuse.
func (v *victim) command(args ...string) (result, error) {
	r := run(v.t, "", program, args...)
	if r.code != 0 && (r.code != 1 || !strings.Contains("\n"+r.stderr, "\nError: ") && !strings.HasPrefix(r.stderr, `{"error":`) || strings.Contains(r.stderr, "goroutine ")) {
		return r, fmt.Errorf("thread %s: %v", args[0], r)
	}
	return r, nil
}

func (v *victim) examine(sum *tally) error {
	sum.tried++
	check, err := v.command("check", "--thread", v.dir)
	if err != nil {
		return err
	}
	peek, err := v.command("peek", "--thread", v.dir, "--last-event-id", "0", "--limit", "100000")
	if err != nil {
		return err
	}
	if err := v.right(peek, check.code != 0); err != nil {
		return err
	}
	if v.same && (peek.code != 0 || check.code != 0) {
		return fmt.Errorf("nothing was damaged: %v %v", peek, check)
	}
	to := v.dir + ".repaired"
	defer os.RemoveAll(to)
	repair, err := v.command("repair", "--thread", v.dir, "--to", to, "--json")
	if err != nil {
		return err
	}
	if err := v.repaired(repair, to); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"info"}, {"pop", "--consumer", "c", "--last-event-id", "5"}, {"push", "--source", "s", "--type", "t", "--content", "after"},
		{"dead", "list"}, {"dead", "retry", "--event-id", "50"}, {"push", "--source", "s", "--type", "t", "--content", "after", "--dedupe-key", "key 99"},
		{"push", "--source", "s", "--type", "t", "--content", strings.Repeat("longer than a record of the journal", 2_000)}, // a fold
	} {
		if _, err := v.command(append(args, "--thread", v.dir)...); err != nil {
			return err
		}
	}
	after, err := v.command("peek", "--thread", v.dir, "--last-event-id", "0", "--limit", "100000")
	if err != nil {
		return err
	}
	if err := v.right(after, check.code != 0); err != nil {
		return fmt.Errorf("after a push: %w", err)
	}
	switch {
	case peek.code != 0:
		sum.reported++
	case check.code != 0:
		sum.checked++
	default:
		sum.harmless++
	}
	if repair.code == 0 {
		sum.saved++
	} else {
		sum.lost++
	}
	return nil
}

// right requires that a successful peek printed every event as it was. Where the
// whole file may be an older one, and check names that, the newest may be missing.
func (v *victim) right(r result, faulty bool) error {
	if r.code != 0 {
		return nil
	}
	faulty = faulty && v.older
	got := lines(r.stdout)
	for i, line := range got {
		if i >= len(v.want) || line == v.want[i] {
			continue
		}
		if faulty && strings.Contains(line, `"after"`) {
			continue
		}
		return fmt.Errorf("event %d is %.300s, want %.300s", i+1, line, v.want[i])
	}
	if len(got) < len(v.want) && !faulty {
		return fmt.Errorf("%d events with exit code 0, want %d, and check finds nothing", len(got), len(v.want))
	}
	return nil
}

// repaired requires that what was saved is right, that what is missing is named as
// lost, or as not known, and that no id is given again.
func (v *victim) repaired(r result, to string) error {
	if r.code != 0 && strings.Contains(r.stderr, "nothing that can be saved") {
		return nil
	}
	var report struct {
		Lost, Unknown [][2]int64
		LostMore      int64 `json:"lost_more_count"`
		Problems      []string
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		return fmt.Errorf("repair: %v: %w", r, err)
	}
	reported := func(id int64) bool {
		in := func(l [2]int64) bool { return l[0] <= id && id <= l[1] }
		return slices.ContainsFunc(report.Lost, in) || slices.ContainsFunc(report.Unknown, in)
	}
	got := lines(thread(v.t, "", "peek", "--thread", to, "--last-event-id", "0", "--limit", "100000"))
	if got[0] == "" {
		got = nil
	}
	for _, want := range v.want {
		switch id := wantID(want); {
		case len(got) > 0 && got[0] == want:
			got = got[1:]
		case !reported(id):
			return fmt.Errorf("repair says nothing of event %d: %.500s", id, r.stdout)
		}
	}
	if len(got) > 0 {
		return fmt.Errorf("repair made up %.300s", got[0])
	}
	next := strings.TrimSpace(thread(v.t, "", "push", "--thread", to, "--source", "s", "--type", "t", "--content", "next"))
	if id, err := strconv.ParseInt(next, 10, 64); err != nil || id <= wantID(v.want[len(v.want)-1]) {
		return fmt.Errorf("repair gives id %s again: %.500s", next, r.stdout)
	}
	thread(v.t, "", "check", "--thread", to)
	return nil
}

func wantID(line string) int64 {
	id, _ := jsonlog.LineID([]byte(line))
	return id
}
