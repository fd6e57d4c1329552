//go:build linux

package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mattn/go-sqlite3"
)

// million is the number of events that the figures are asked for; with fewer,
// starting a process is most of everything.
const million = 1_000_000

// row is one line of the table.
type row struct {
	what, ours, theirs string
	figure             float64 // what is compared with asked
	best               float64 // the ratio of the 10th percentiles; 0: there are too few rounds
	asked              float64 // 0: nothing
	atLeast            bool    // figure is to be at least asked, not at most
	unit               string  // of figure; "" for a ratio
}

func (l *lab) add(r row) {
	l.rows = append(l.rows, r)
	fmt.Fprintf(os.Stderr, "  %s: %s, %s: %.2f %s\n", r.what, r.ours, r.theirs, r.figure, r.unit)
}

// paired adds a row for what ran in turn. The figure is the median of the ratios
// of each round, since the machine may be slower in one round than in the next.
func (l *lab) paired(what string, ours, theirs []time.Duration, against string, asked float64) {
	ratios := make([]float64, min(len(ours), len(theirs)))
	for i := range ratios {
		ratios[i] = float64(ours[i]) / float64(theirs[i])
	}
	r := row{what: what, ours: shown(ours), theirs: shown(theirs) + " " + against, figure: median(ratios), asked: asked}
	if len(ratios) >= 10 {
		r.best = float64(percentile(ours, 10)) / float64(percentile(theirs, 10))
	}
	l.add(r)
}

// shown is the 10th percentile, where there are enough, and the median.
func shown(of []time.Duration) string {
	if len(of) < 10 {
		return show(median(of))
	}
	return show(percentile(of, 10)) + " / " + show(median(of))
}

// ratio adds a row for two durations.
func (l *lab) ratio(what string, ours, theirs time.Duration, against string, asked float64) {
	l.add(row{what: what, ours: show(ours), theirs: show(theirs) + " " + against, figure: float64(ours) / float64(theirs), asked: asked})
}

func show(d time.Duration) string {
	switch ms := float64(d.Nanoseconds()) / 1e6; {
	case ms < 0.1:
		return fmt.Sprintf("%.0f µs", ms*1000)
	case ms < 100:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
}

func median[T int64 | float64 | time.Duration](of []T) T {
	of = slices.Clone(of)
	slices.Sort(of)
	return of[len(of)/2]
}

func percentile(of []time.Duration, p int) time.Duration {
	of = slices.Clone(of)
	slices.Sort(of)
	return of[min(len(of)-1, len(of)*p/100)]
}

func (l *lab) print(w io.Writer) error {
	var b bytes.Buffer
	machine, err := l.machine()
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "%s\n\n| what | thread | next to | at p10 | figure | asked | |\n|---|---|---|---|---|---|---|\n", machine)
	for _, r := range l.rows {
		figure, best := number(r.figure), ""
		if r.best > 0 {
			best = number(r.best)
		}
		if r.unit != "" {
			figure += " " + r.unit
		}
		asked, verdict := "", ""
		if r.asked != 0 {
			asked = fmt.Sprintf("≤ %g", r.asked)
			met := r.figure <= r.asked
			if r.atLeast {
				asked, met = fmt.Sprintf("≥ %g", r.asked), r.figure >= r.asked
			}
			if !met && l.events >= million {
				verdict = "missed"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.what, r.ours, r.theirs, best, figure, asked, verdict)
	}
	_, err = w.Write(b.Bytes())
	return err
}

func number(f float64) string {
	if f < 0.095 {
		return fmt.Sprintf("%.4f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// machine describes where the figures come from.
func (l *lab) machine() (string, error) {
	cpu := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, found := strings.Cut(string(text), "model name"); found {
			line, _, _ := strings.Cut(after, "\n")
			cpu = strings.TrimLeft(line, "\t :")
		}
	}
	var u syscall.Utsname
	if err := syscall.Uname(&u); err != nil {
		return "", err
	}
	kernel := make([]byte, 0, len(u.Release))
	for _, c := range u.Release {
		if c == 0 {
			break
		}
		kernel = append(kernel, byte(c))
	}
	sync, err := l.syncCost()
	if err != nil {
		return "", err
	}
	load := "unknown"
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = strings.Fields(string(text))[0]
	}
	shell, err := exec.Command(l.shell, "-version").Output()
	if err != nil {
		return "", err
	}
	inC, _, _ := sqlite3.Version()
	inGo, err := modernVersion()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s events with some 230 bytes of content in 800 series; %s, %d cores, Linux %s, %s, fdatasync of 4 KiB %s, load at the end %s. "+
		"%s%s; SQLite %s in the shell, %s through C (mattn/go-sqlite3 %s), %s in Go (modernc.org/sqlite %s). "+
		"Times are the 10th percentile / the median. The programs were loaded from the disk page by page, as after a boot.",
		thousands(l.events), cpu, runtime.NumCPU(), kernel, fileSystem(l.dir), show(sync), load,
		runtime.Version(), experiment(), strings.Fields(string(shell))[0], inC, moduleVersion("github.com/mattn/go-sqlite3"), inGo, moduleVersion("modernc.org/sqlite")), nil
}

// experiment is how thread was built, except for its flags.
func experiment() string {
	if s := os.Getenv("GOEXPERIMENT"); s != "" {
		return " with GOEXPERIMENT=" + s
	}
	return ""
}

// fileSystem is the type of the mount that dir lies on.
func fileSystem(dir string) string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "an unknown file system"
	}
	kind, longest := "an unknown file system", -1
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) <= longest {
			continue
		}
		if dir == f[1] || strings.HasPrefix(dir, strings.TrimSuffix(f[1], "/")+"/") {
			kind, longest = f[2], len(f[1])
		}
	}
	return kind
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "of unknown version"
}

func modernVersion() (v string, err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	return v, db.QueryRow("SELECT sqlite_version()").Scan(&v)
}

// syncCost is the median of an append of 4 KiB with fdatasync, of which a push
// takes two.
func (l *lab) syncCost() (time.Duration, error) {
	f, err := os.Create(l.path("sync"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var took []time.Duration
	page := make([]byte, 4096)
	for range l.rounds {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	return median(took), nil
}
