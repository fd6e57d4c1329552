package command

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Stat is what /proc/PID/stat says of a process.
type Stat struct {
	PID, Parent, Session int
	Began                uint64 // ticks since the system's start
}

// ReadStat returns the state of a process that runs.
func ReadStat(pid int) (p Stat, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false
	}
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 20 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return p, false
	}
	p.PID = pid
	p.Parent, _ = strconv.Atoi(string(f[1]))
	p.Session, _ = strconv.Atoi(string(f[3]))
	p.Began, err = strconv.ParseUint(string(f[19]), 10, 64)
	return p, err == nil
}

// RunOf returns the run id in a process's environment, and whether there is one
// and may be read.
func RunOf(pid int) (string, bool) { return environmentOf(pid).get(EnvRun) }

// environment is a process's, as /proc has it: each variable with a zero byte before it.
type environment []byte

func environmentOf(pid int) environment {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	return append([]byte{0}, text...)
}

func (e environment) get(name string) (string, bool) {
	_, rest, ok := bytes.Cut(e, []byte("\x00"+name+"="))
	value, _, _ := bytes.Cut(rest, []byte{0})
	return string(value), ok
}

// holds reports whether one of the process's descriptors of the files has their lock in this
// mode, READ or WRITE: a process that only asks for a tree lock takes it shared.
func holds(pid int, files []unix.Stat_t, mode string) bool {
	if len(files) == 0 {
		return false
	}
	dir := "/proc/" + strconv.Itoa(pid)
	fds, _ := os.ReadDir(dir + "/fd") // of another account: nothing
	for _, fd := range fds {
		var got unix.Stat_t
		if unix.Stat(dir+"/fd/"+fd.Name(), &got) != nil || !isOne(&got, files) {
			continue
		}
		info, _ := os.ReadFile(dir + "/fdinfo/" + fd.Name())
		for line := range bytes.Lines(info) {
			if bytes.Contains(line, []byte("FLOCK")) && bytes.Contains(line, []byte(mode)) {
				return true
			}
		}
	}
	return false
}

func isOne(got *unix.Stat_t, files []unix.Stat_t) bool {
	for i := range files {
		if got.Dev == files[i].Dev && got.Ino == files[i].Ino {
			return true
		}
	}
	return false
}
