package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// lists are reasons.txt and unreached.txt.
type lists struct {
	allowed map[string]int // how often a key may be unreached: a line can be in a function twice
	most    int            // entries of unreached.txt; -1 without the file
}

func readLists() (l lists, err error) {
	l = lists{map[string]int{}, -1}
	reasons, err := lines(place + "/reasons.txt")
	if err != nil {
		return l, err
	}
	if len(reasons) > maxReasons {
		return l, usagef("%s/reasons.txt lists %d blocks, more than %d - reach some of them", place, len(reasons), maxReasons)
	}
	known, err := lines(place + "/unreached.txt")
	if known != nil {
		l.most = len(known)
	}
	for _, line := range slices.Concat(reasons, known) {
		key, _, _ := strings.Cut(line, " // ")
		l.allowed[key]++
	}
	return l, err
}

// missing returns the blocks that no run reached, and those that no list has.
func (l *lists) missing(blocks []*block) (unreached, unlisted []*block) {
	seen := map[string]int{}
	for _, b := range blocks {
		if b.reached > 0 {
			continue
		}
		unreached = append(unreached, b)
		if seen[b.key]++; seen[b.key] > l.allowed[b.key] {
			unlisted = append(unlisted, b)
		}
	}
	return unreached, unlisted
}

// update writes unreached.txt.
func update(blocks []*block, most int) error {
	reasons, err := lines(place + "/reasons.txt")
	if err != nil {
		return err
	}
	reasoned := map[string]int{}
	for _, line := range reasons {
		key, _, _ := strings.Cut(line, " // ")
		reasoned[key]++
	}
	var sections [3][]string
	count := 0
	for _, b := range blocks {
		if b.reached == runs {
			continue
		}
		if reasoned[b.key]--; reasoned[b.key] >= 0 {
			continue
		}
		section := 0
		switch {
		case b.reached > 0:
			section = 2
		case b.wide:
			section = 1
		}
		count++
		sections[section] = append(sections[section], b.key)
	}
	if most >= 0 && count > most {
		return fmt.Errorf("%d blocks are unreached, and %s/unreached.txt has %d - reach %d of them by tests", count, place, most, count-most)
	}
	text := head
	for i, of := range sections {
		slices.Sort(of)
		text += "\n# " + titles[i] + "\n" + strings.Join(append(of, ""), "\n")
	}
	return os.WriteFile(place+"/unreached.txt", []byte(text), 0o644)
}

const head = `# Blocks that a run of make branches may not reach, as BRANCHES='-update -all' writes them:
# the function, and the line on which the block begins. This list gets shorter, never longer.
`

var titles = [3]string{
	"Reached by no test.",
	"Reached by tests of programs alone, which run with -all.",
	"Reached in some runs, by luck.",
}

// lines returns the lines of a file, without comments. A missing file has none.
func lines(path string) (list []string, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	list = []string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			list = append(list, line)
		}
	}
	return list, err
}
