package survive

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	ondisk "thread/internal/store/bolt/disk"
)

// released writes a thread directory whose database is the file that is kept of a format,
// and nothing else.
func released(t *testing.T, format int, dir string) {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the file is of a little-endian host")
	}
	f, err := os.Open(fmt.Sprintf(root+"/internal/store/bolt/testdata/format%d.db.gz", format))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b []byte
	z, err := gzip.NewReader(f)
	if err == nil {
		b, err = io.ReadAll(z)
	}
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "events.db"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

var reported = regexp.MustCompile(`(?m)^(Format|Digest): ([0-9a-f]+)`)

// formatAndDigest is what check says of a thread without a fault.
func formatAndDigest(t *testing.T, dir string) (format, digest string) {
	t.Helper()
	for _, m := range reported.FindAllStringSubmatch(thread(t, "", "check", "--thread", dir), -1) {
		if m[1] == "Format" {
			format = m[2]
		} else {
			digest = m[2]
		}
	}
	return format, digest
}

func events(t *testing.T, dir string) string {
	t.Helper()
	return thread(t, "", "peek", "--thread", dir, "--last-event-id", "0", "--limit", "1000000")
}

// TestUpgrade: a thread of each format that was ever released is read, pushed to, exported, imported
// again, backed up and restored as it is, and keeps its format until it is compacted, or
// events are dropped.
func TestUpgrade(t *testing.T) {
	newest := fmt.Sprint(ondisk.FormatVersion)
	for format := 3; format <= ondisk.FormatVersion; format++ {
		t.Run(fmt.Sprint("format", format), func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			dir := base + "/t"
			released(t, format, dir)
			is := func(dir, wantFormat, wantDigest string) {
				t.Helper()
				if f, d := formatAndDigest(t, dir); f != wantFormat || d != wantDigest || d == "" {
					t.Errorf("%s: format %s, digest %s, want %s, %s", dir, f, d, wantFormat, wantDigest)
				}
			}
			old := events(t, dir)
			id := thread(t, "", "push", "--thread", dir, "--source", "new", "--type", "v", "--content", "of the new program", "--json")
			now := events(t, dir)
			if !strings.HasPrefix(now, old) || !strings.HasSuffix(now, id) || strings.Count(old, "\n") < 2000 {
				t.Fatalf("%d lines before the push, %d after it", strings.Count(old, "\n"), strings.Count(now, "\n"))
			}
			f, digest := formatAndDigest(t, dir)
			if f != fmt.Sprint(format) {
				t.Errorf("after a push the format is %s", f)
			}

			thread(t, "", "export", "--thread", dir, "--to", base+"/sqlite")
			thread(t, "", "import", base+"/sqlite", "--to", base+"/imported")
			if got := events(t, base+"/imported"); got != now {
				t.Errorf("exported and imported: %d bytes of events, %d before", len(got), len(now))
			}
			if got := thread(t, "", "export", "--thread", dir, "--format", "jsonl"); got != now {
				t.Errorf("exported as lines: %d bytes of events, %d before", len(got), len(now))
			}

			thread(t, "", "backup", "--thread", dir, base+"/backups")
			is(base+"/backups/000001", newest, digest)
			thread(t, "", "push", "--thread", dir, "--source", "new", "--type", "v", "--content", "since")
			_, digest = formatAndDigest(t, dir)
			if r := thread(t, "", "backup", "--thread", dir, base+"/backups"); !strings.Contains(r, "of which 1 ") {
				t.Errorf("the second backup does not go on from the first: %s", r)
			}
			thread(t, "", "restore", base+"/backups", "--to", base+"/restored", "--deliver")
			is(base+"/restored", newest, digest)
			is(dir, fmt.Sprint(format), digest)
			if got := events(t, base+"/restored"); got != events(t, dir) {
				t.Error("restored are other events")
			}

			dropped := base + "/dropped"
			copyDir(t, dir, dropped)
			thread(t, "", "retain", "--thread", dropped, "--max-events", "1000", "--force")
			if f, _ := formatAndDigest(t, dropped); f != newest || strings.Count(events(t, dropped), "\n") > 1000 {
				t.Errorf("limits make format %s", f)
			}

			thread(t, "", "compact", "--thread", dir)
			is(dir, newest, digest)
			thread(t, "", "push", "--thread", dir, "--source", "new", "--type", "v", "--content", "afterwards")
		})
	}
}

// TestDowngrade: what writes, copies, moves or checks a thread refuses the file of a later program
// by name, and leaves the directory as it is.
func TestDowngrade(t *testing.T) {
	base := t.TempDir()
	dir, history, backups := base+"/t", base+"/h", base+"/b"
	fresh(t, dir)
	later := newer(t, dir)
	put := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, later, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fresh(t, history)
	thread(t, "", "session", "start", "--thread", history, "--id", "one")
	thread(t, "", "backup", "--thread", dir, backups)
	put(dir + "/events.db")
	put(history + "/history/events.db")
	put(backups + "/000001/events.db")
	for _, args := range [][]string{
		{"export", "--thread", dir, "--to", base + "/sqlite"}, {"export", "--thread", dir, "--format", "jsonl"},
		{"mirror", "--thread", dir, "--to", base + "/copy.sqlite"},
		{"backup", "--thread", dir, base + "/new"}, {"backup", "--thread", history, base + "/new"},
		{"restore", backups, "--to", base + "/restored"},
		{"retain", "--thread", dir}, {"retain", "--thread", dir, "--max-events", "1"}, {"repair", "--thread", dir, "--to", base + "/repaired"},
		{"history", "retain", "--thread", history, "--ok", "1h"}, {"session", "list", "--thread", history}, {"seek", "--thread", dir, "--consumer", "c", "--to", "end"},
		{"ack", "--thread", dir, "--consumer", "c", "--event-id", "1"}, {"check", "--thread", dir, "--fix-log"}, {"unsubscribe", "--thread", dir, "--consumer", "c"},
	} {
		r := run(t, "", program, args...)
		if r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "newer version") || oneError(r.stderr) != nil {
			t.Errorf("%q: %v", args, r)
		}
	}
	for _, path := range []string{dir + "/events.db", history + "/history/events.db", backups + "/000001/events.db"} {
		if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, later) {
			t.Errorf("%s was changed (%v)", path, err)
		}
	}
	for _, name := range []string{"sqlite", "copy.sqlite", "restored", "repaired"} {
		if _, err := os.Lstat(base + "/" + name); err == nil {
			t.Errorf("there is %s", name)
		}
	}
	if left, _ := filepath.Glob(base + "/new/0*"); len(left) > 0 {
		t.Errorf("there is %q", left)
	}
}
