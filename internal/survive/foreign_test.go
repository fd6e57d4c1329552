package survive

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// TestForeignFiles puts what is not a sound database in the place of events.db. Every
// command refuses it with one line that says what it is, and leaves it alone.
func TestForeignFiles(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base")
	fresh(t, base)
	db, err := os.ReadFile(filepath.Join(base, "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	otherOrder := bytes.Clone(db)
	for _, at := range []int{0, pageBytes} { // the first fields of both meta pages
		for i := at + 16; i < at+32; i += 4 {
			binary.BigEndian.PutUint32(otherOrder[i:], binary.LittleEndian.Uint32(db[i:]))
		}
	}
	for _, tt := range []struct {
		name, want string
		data       []byte
	}{
		{"empty", "is not a thread database", nil},
		{"one byte", "is not a thread database", []byte("x")},
		{"text", "is not a thread database", []byte(strings.Repeat("this is no database\n", 1000))},
		{"zeros", "is not a thread database", make([]byte, 32<<10)},
		{"SQLite", "is a SQLite thread directory", append([]byte("SQLite format 3\x00"), make([]byte, 8192)...)},
		{"other byte order", "written on a host of other byte order", otherOrder},
		{"newer version", "written by a newer version", newer(t, base)},
		{"another program's bbolt file", "is not a thread database", anotherProgram(t)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "events.db")
			if err := os.WriteFile(path, tt.data, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{
				{"push", "--source", "s", "--type", "t", "--content", "c"}, {"pop", "--consumer", "c", "--last-event-id", "0"},
				{"peek", "--last-event-id", "0"}, {"info"}, {"check"}, {"compact"}, {"prune", "--acked"}, {"dispatch"},
				{"subscribe", "--consumer", "x", "--handler", "true"},
			} {
				r := run(t, "", program, append(args, "--thread", dir)...)
				if r.code != 1 || r.stdout != "" || !strings.HasPrefix(r.stderr, "Error: ") || !strings.Contains(r.stderr, tt.want) {
					t.Errorf("%s: %v", args[0], r)
				}
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, tt.data) {
				t.Errorf("events.db was changed (%v)", err)
			}
		})
	}
}

// edit lets fn change a bbolt file in a transaction and returns the file.
func edit(t *testing.T, path string, fn func(tx *bbolt.Tx) error) []byte {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(fn)
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newer(t *testing.T, base string) []byte {
	dir := filepath.Join(t.TempDir(), "newer")
	copyDir(t, base, dir)
	return edit(t, filepath.Join(dir, "events.db"), func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte("thrd\x00\x00\x00\x63"))
	})
}

func anotherProgram(t *testing.T) []byte {
	return edit(t, filepath.Join(t.TempDir(), "other.db"), func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("keys"))
		return err
	})
}

// TestDamagedLines spoils events.jsonl. No event is lost by that, the next push
// works, check finds what does not heal, and a second push changes nothing more.
func TestDamagedLines(t *testing.T) {
	rounds := 40
	if full {
		rounds = 400
	}
	base := filepath.Join(t.TempDir(), "base")
	fresh(t, base)
	thread(t, batch(60, "text"), "push", "--thread", base, "--batch")
	whole, err := os.ReadFile(filepath.Join(base, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	want := thread(t, "", "peek", "--thread", base, "--last-event-id", "0")
	healed, reported := 0, 0
	for n := range rounds {
		r := rand.New(rand.NewPCG(7, uint64(n)))
		text, what := spoilLines(r, bytes.Clone(whole))
		dir := filepath.Join(t.TempDir(), "thread")
		copyDir(t, base, dir)
		path := filepath.Join(dir, "events.jsonl")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		next := thread(t, "", "push", "--thread", dir, "--source", "s", "--type", "t", "--content", "next", "--json")
		if got := thread(t, "", "peek", "--thread", dir, "--last-event-id", "0"); got != want+next {
			t.Fatalf("round %d, %s: the events changed", n, what)
		}
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(now, []byte(next)) {
			t.Fatalf("round %d, %s: the last line is not the last event", n, what)
		}
		check := run(t, "", program, "check", "--thread", dir)
		switch {
		case string(now) == want+next:
			healed++
			if check.code != 0 {
				t.Errorf("round %d, %s: healed, and yet: %v", n, what, check)
			}
		case check.code == 1 && strings.Contains(check.stdout, "Fault: events.jsonl"):
			reported++
		case check.code == 0 && onlyOtherLines(string(now), want+next):
		default:
			t.Errorf("round %d, %s: events.jsonl is wrong and check says: %v", n, what, check)
		}
	}
	t.Logf("%d damages: %d healed, %d named by check", rounds, healed, reported)
}

// onlyOtherLines reports whether text is want with lines before it that are not
// events of ours, or without some of its lines, as of a file that was begun again.
func onlyOtherLines(text, want string) bool {
	rest := want
	for line := range strings.Lines(text) {
		if at := strings.Index(rest, line); at >= 0 && strings.HasPrefix(line, `{"id":`) {
			rest = rest[at+len(line):]
		} else if strings.HasPrefix(line, `{"id":`) {
			return false
		}
	}
	return true
}

func spoilLines(r *rand.Rand, text []byte) ([]byte, string) {
	at := r.IntN(len(text))
	switch r.IntN(6) {
	case 0:
		return text[:at], fmt.Sprintf("cut to %d bytes", at)
	case 1:
		bit := r.IntN(8)
		text[at] ^= 1 << bit
		return text, fmt.Sprintf("byte %d bit %d", at, bit)
	case 2:
		n := min(len(text)-at, 1+r.IntN(300))
		clear(text[at : at+n])
		return text, fmt.Sprintf("zeros in [%d, %d)", at, at+n)
	case 3:
		return append(text, "no newline at the end"...), "a torn foreign line"
	case 4:
		return nil, "empty"
	}
	return append(text, text[at:]...), fmt.Sprintf("the end from %d twice", at)
}
