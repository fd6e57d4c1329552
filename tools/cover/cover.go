// Package cover makes test binaries and programs that count which of their blocks run,
// also in processes that are killed, and reads what they have counted.
package cover

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed counters.go.txt
var counters []byte

// Package returns the package of a directory or file.
func Package(room string) string {
	if strings.HasSuffix(room, ".go") {
		return "./" + filepath.Dir(room)
	}
	return room
}

// Packages returns the packages of rooms, which are directories or files, and the main
// packages: without those a program counts nothing.
func Packages(rooms []string) ([]string, error) {
	args := []string{"list"}
	if _, err := os.Stat("cmd"); err == nil {
		args = append(args, "./cmd/...")
	}
	for _, room := range rooms {
		args = append(args, Package(room))
	}
	out, err := Go(args...)
	return strings.Fields(out), err
}

// Flags returns the GOFLAGS with which go counts blocks of the packages, as Packages
// returns them. It keeps two files in dir. A module without
// a package event counts only in processes that end by themselves.
func Flags(dir string, packages []string) (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	flags := "-cover -covermode=atomic -coverpkg=" + strings.Join(packages, ",")
	// The file is in package event, which every program has: packages that are measured
	// must not have files of an overlay.
	if _, err := os.Stat("event"); err != nil {
		return flags, nil
	}
	file, overlay := filepath.Join(dir, "counters.go"), filepath.Join(dir, "counters.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "event", "counters_branches.go"): file}})
	if err != nil {
		return "", err
	}
	return flags + " -overlay=" + overlay, errors.Join(os.WriteFile(file, counters, 0o600), os.WriteFile(overlay, list, 0o600))
}

// Data makes the directory data, to which processes of all users write what they count
// when GOCOVERDIR names it.
func Data(data string) error {
	live := filepath.Join(data, "live")
	return errors.Join(os.MkdirAll(live, 0o700), os.Chmod(data, 0o777), os.Chmod(live, 0o777))
}

// Block is a piece of code without a branch in it.
type Block struct {
	Place      string // path, lines and columns, as in the profile
	Path       string // relative to the root of the module
	Line, End  int    // from 1: where it begins and ends
	Statements int
	Reached    bool
}

// Read returns the blocks of all that was counted below data, each once, in no order.
func Read(data string) ([]*Block, error) {
	profile := filepath.Join(data, "profile")
	if _, err := Go("tool", "covdata", "textfmt", "-i="+data, "-o="+profile); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	module, err := Go("list", "-m")
	if err != nil {
		return nil, err
	}
	return Parse(string(text), strings.TrimSpace(module))
}

// Parse returns the blocks of a profile of the module, each once, in no order.
func Parse(profile, module string) ([]*Block, error) {
	found := map[string]*Block{}
	var blocks []*Block
	for line := range strings.Lines(profile) {
		place, numbers, _ := strings.Cut(strings.TrimSpace(line), " ")
		path, span, ok := strings.Cut(strings.TrimPrefix(place, module+"/"), ":")
		if !ok || place == "mode:" {
			continue
		}
		b := found[place]
		if b == nil {
			b = &Block{Place: place, Path: path}
			found[place] = b
			blocks = append(blocks, b)
		}
		var column, count int
		if _, err := fmt.Sscanf(span, "%d.%d,%d.", &b.Line, &column, &b.End); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		if _, err := fmt.Sscanf(numbers, "%d %d", &b.Statements, &count); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		b.Reached = b.Reached || count > 0
	}
	return blocks, nil
}

// Go runs go and returns what it prints. The error has the first line of its complaint.
func Go(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, FirstLine(stderr.String()))
	}
	return string(out), nil
}

// FirstLine returns the first line of go's output that is not a heading.
func FirstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return line
		}
	}
	return ""
}
