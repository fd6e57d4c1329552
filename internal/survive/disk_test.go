package survive

import (
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// disk is a directory as a file system that promises as little as possible would
// keep it: only what was synced is certain, of a file or of a directory's names. What
// was written since may have reached the medium in part, in any order, torn at
// sectors of 512 bytes.
type disk struct {
	names, synced map[string]*file // by path, as programs see them and as a cut leaves them at least
	changes       []nameChange     // since the directory was synced
}

type file struct {
	data, synced []byte
	writes       []fileWrite // since the file was synced

	dir      bool
	hollow   bool  // renamed and not synced since: FAT may lose what is in it
	replaced *file // by that rename: FAT may still have its bytes under the name instead
}

type fileWrite struct {
	at   int
	data []byte // nil: the file is cut to at bytes
}

// nameChange gives a file a name, in one step taking away another, as a rename
// does.
type nameChange struct {
	path string
	file *file  // nil: removed
	from string // "": no rename
}

func (c nameChange) apply(names map[string]*file) {
	if c.file != nil && c.file.dir && c.from != "" {
		for path, f := range names {
			if below, ok := strings.CutPrefix(path, c.from+"/"); ok {
				delete(names, path)
				names[filepath.Join(c.path, below)] = f
			}
		}
	}
	delete(names, c.from)
	if names[c.path] = c.file; c.file == nil {
		delete(names, c.path)
	}
}

const sector = 512

// load makes a disk of a directory tree, all of it durable.
func load(t *testing.T, dir string) *disk {
	d := &disk{names: map[string]*file{}, synced: map[string]*file{}}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			d.names[path] = &file{dir: true}
			return nil
		}
		data, err := os.ReadFile(path)
		d.names[path] = &file{data: data, synced: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	d.synced = maps.Clone(d.names)
	return d
}

func (f *file) write(at int, data []byte) {
	f.writes = append(f.writes, fileWrite{at, data})
	f.data = fileWrite{at, data}.apply(f.data, nil)
}

func (f *file) cut(size int) {
	f.writes = append(f.writes, fileWrite{at: size})
	f.data = fileWrite{at: size}.apply(f.data, nil)
}

// apply returns data with the write carried out, of which r may leave out sectors.
func (w fileWrite) apply(data []byte, r func() bool) []byte {
	size := max(len(data), w.at+len(w.data))
	if w.data == nil {
		size = w.at
	}
	out := make([]byte, size)
	copy(out, data)
	for i := 0; i < len(w.data); {
		n := min(sector-(w.at+i)%sector, len(w.data)-i)
		if r == nil || r() {
			copy(out[w.at+i:], w.data[i:i+n])
		}
		i += n
	}
	return out
}

func (d *disk) change(c nameChange) {
	d.changes = append(d.changes, c)
	c.apply(d.names)
}

func (d *disk) syncDir(dir string) {
	var rest []nameChange
	for _, c := range d.changes {
		if filepath.Dir(c.path) != dir {
			rest = append(rest, c)
		} else {
			c.apply(d.synced)
		}
	}
	d.changes = rest
}

// cutOff writes what a loss of power could leave into dir, with the paths below
// root. keep decides for each thing that is not synced whether it reached the
// medium.
func (d *disk) cutOff(t *testing.T, root, dir string, r *rand.Rand, keep func() bool) {
	names := maps.Clone(d.synced)
	for _, c := range d.changes {
		if keep() {
			c.apply(names)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"run", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(names)) {
		if f := names[path]; f != nil && f.dir && f.hollow && !keep() {
			maps.DeleteFunc(names, func(p string, _ *file) bool { return strings.HasPrefix(p, path+"/") })
		}
	}
	for path, f := range names {
		rel, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		if !reachable(names, root, path) {
			continue
		}
		if f.dir {
			if err := os.MkdirAll(filepath.Join(dir, rel), 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, rel)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, rel), f.left(path, r, keep), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// reachable tells whether every directory that path is in, below root, has its name.
func reachable(names map[string]*file, root, path string) bool {
	for above := filepath.Dir(path); above != root && len(above) > len(root); above = filepath.Dir(above) {
		if f := names[above]; f == nil || !f.dir {
			return false
		}
	}
	return true
}

// left returns what a cut leaves of a file. A file that only grows is cut
// somewhere: file systems write its length after its data.
func (f *file) left(path string, r *rand.Rand, keep func() bool) []byte {
	data := f.synced
	if f.hollow && !keep() {
		if f.replaced == nil {
			return nil
		}
		return f.replaced.left(path, r, keep)
	}
	if strings.HasSuffix(path, ".jsonl") || strings.HasSuffix(path, ".log") {
		for _, w := range f.writes {
			if !keep() {
				break
			}
			if n := len(w.data); n > 0 && r.IntN(3) == 0 {
				return fileWrite{w.at, w.data[:r.IntN(n)+1]}.apply(data, nil)
			}
			data = w.apply(data, nil)
		}
		return data
	}
	for _, i := range r.Perm(len(f.writes)) {
		data = f.writes[i].apply(data, keep)
	}
	return data
}

// step is one recorded system call.
type step struct {
	call string
	do   func(d *disk)
}

var (
	tracedCall  = regexp.MustCompile(`^\d+ +([a-z0-9_]+)\((.*)$`)
	fdPath      = regexp.MustCompile(`^\d+<([^>]*)>`)
	copiedTo    = regexp.MustCompile(`, \d+<((?:\\x[0-9a-f]{2})+)>`)
	copiedBytes = regexp.MustCompile(`= (\d+)$`)
	hexString   = regexp.MustCompile(`"((?:\\x[0-9a-f]{2})*)"`)
)

// steps runs a command under strace and returns its calls that change something
// below dir, in their order.
func steps(t *testing.T, dir, stdin string, args ...string) []step {
	t.Helper()
	list, r := stepsUntil(t, dir, stdin, nil, args...)
	if r.code != 0 {
		t.Fatalf("%q: %v", args, r)
	}
	return list
}

// stepsUntil is steps for a command that is killed at a point, unless that is nil. The
// calls that the kill prevented are left out.
func stepsUntil(t *testing.T, dir, stdin string, kill *point, args ...string) (list []step, r result) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "strace")
	argv := []string{"-f", "-y", "-qq", "-xx", "-s", "100000000", "-o", log,
		"-e", "trace=openat,pwrite64,write,copy_file_range,ftruncate,fsync,fdatasync,renameat,renameat2,unlinkat,mkdirat"}
	if kill != nil {
		argv = append(argv, "-e", "inject="+kill.call+":"+kill.effect+":when="+kill.when)
	}
	r = run(t, stdin, "strace", append(append(argv, program), args...)...)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range wholeCalls(string(text)) {
		m := tracedCall.FindStringSubmatch(line)
		if m == nil || strings.HasSuffix(line, "= ?") { // prevented by a kill
			continue
		}
		if s, ok := parseStep(m[1], m[2], dir); ok {
			list = append(list, s)
		}
	}
	return list, r
}

// wholeCalls returns the lines of strace with each call in one line, where it began. strace
// cuts a call in two when another thread makes one meanwhile. A call that never returned is
// left out.
func wholeCalls(log string) (lines []string) {
	begun := map[string]int{} // by thread
	for line := range strings.Lines(log) {
		line = strings.TrimSuffix(line, "\n")
		thread, _, _ := strings.Cut(line, " ")
		_, rest, resumed := strings.Cut(line, " resumed>")
		if i, ok := begun[thread]; ok && resumed && strings.Contains(line, "<... ") {
			lines[i] += rest
			delete(begun, thread)
			continue
		}
		start, cut := strings.CutSuffix(line, "<unfinished ...>")
		if cut {
			begun[thread] = len(lines)
		}
		lines = append(lines, start)
	}
	for _, i := range begun {
		lines[i] = ""
	}
	return lines
}

func unhex(s string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(s, `\x`, ""))
	if err != nil {
		panic(err)
	}
	return string(b)
}

// parseStep understands one line of strace.
func parseStep(call, rest, dir string) (step, bool) {
	inside := func(path string) bool { return strings.HasPrefix(path+"/", dir+"/") }
	var texts []string
	for _, m := range hexString.FindAllStringSubmatch(rest, -1) {
		texts = append(texts, unhex(m[1]))
	}
	path := ""
	if m := fdPath.FindStringSubmatch(rest); m != nil {
		path = m[1]
		if strings.Contains(path, `\x`) {
			path = unhex(path)
		}
	}
	// The numbers behind the data: offset, or new length.
	after := rest[strings.LastIndexByte(rest, '"')+1:]
	if call == "ftruncate" {
		after = rest[strings.IndexByte(rest, '>')+1:]
	}
	var numbers []int
	for _, s := range regexp.MustCompile(`\d+`).FindAllString(after, -1) {
		n, _ := strconv.Atoi(s)
		numbers = append(numbers, n)
	}
	s := step{call: call + " " + filepath.Base(path)}
	switch call {
	case "openat":
		if len(texts) == 0 || !inside(texts[0]) || !strings.Contains(rest, "O_CREAT") {
			return s, false
		}
		s.do = func(d *disk) {
			if d.names[texts[0]] == nil {
				d.change(nameChange{path: texts[0], file: new(file)})
			}
		}
		return s, true
	case "mkdirat":
		s.do = func(d *disk) { d.change(nameChange{path: texts[0], file: &file{dir: true}}) }
		return s, len(texts) == 1 && inside(texts[0]) && strings.HasSuffix(rest, "= 0")
	case "renameat", "renameat2":
		s.do = func(d *disk) {
			f := d.names[texts[0]]
			if f != nil {
				f.hollow, f.replaced = true, d.names[texts[1]]
			}
			d.change(nameChange{path: texts[1], file: f, from: texts[0]})
		}
		return s, len(texts) == 2 && inside(texts[0])
	case "unlinkat":
		if len(texts) == 1 && path != "" && !filepath.IsAbs(texts[0]) {
			texts[0] = filepath.Join(path, texts[0])
		}
		s.do = func(d *disk) { d.change(nameChange{path: texts[0]}) }
		return s, len(texts) == 1 && inside(texts[0])
	}
	if call == "copy_file_range" {
		to, n := copiedTo.FindStringSubmatch(rest), copiedBytes.FindStringSubmatch(rest)
		if to == nil || n == nil || !inside(unhex(to[1])) {
			return s, false
		}
		size, _ := strconv.Atoi(n[1])
		s.do = func(d *disk) { // from its beginning to its end
			f := d.names[unhex(to[1])]
			f.write(len(f.data), d.names[path].data[len(f.data):][:size])
		}
		return s, true
	}
	if !inside(path) {
		return s, false
	}
	s.do = func(d *disk) {
		f := d.names[path]
		switch {
		case f != nil && f.dir:
			f.hollow = false
			d.syncDir(path)
		case f == nil: // deleted
		case call == "write":
			f.write(len(f.data), []byte(texts[0])) // all are opened for appending
		case call == "pwrite64":
			f.write(numbers[1], []byte(texts[0]))
		case call == "ftruncate":
			f.cut(numbers[0])
		default:
			f.synced, f.writes, f.hollow, f.replaced = f.data, nil, false, nil
		}
	}
	return s, true
}
