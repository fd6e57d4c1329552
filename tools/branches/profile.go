package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// block is a piece of code without a branch in it.
type block struct {
	place      string // path, lines and columns, as in the profile
	path       string // relative to the root of the module
	line       int    // from 1, where it begins
	statements int
	reached    int    // by how many runs
	wide       bool   // by the tests of programs
	key        string // function and line: what stays while lines and files move
}

// read adds the blocks of the rooms in a profile, of one run, to the blocks of runs before it.
func read(profile string, rooms []string, before []*block) ([]*block, error) {
	module, err := goTool("", "list", "-m")
	if err != nil {
		return nil, usagef("%w", err)
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	found, now := map[string]*block{}, map[string]bool{}
	for _, b := range before {
		found[b.place] = b
	}
	for line := range strings.Lines(string(text)) {
		place, numbers, ok := strings.Cut(strings.TrimSpace(line), " ")
		path, span, ok2 := strings.Cut(strings.TrimPrefix(place, strings.TrimSpace(module)+"/"), ":")
		if !ok || !ok2 || !within(path, rooms) {
			continue
		}
		b := found[place]
		if b == nil {
			b = &block{place: place, path: path}
			found[place] = b
		}
		var count int
		if _, err := fmt.Sscanf(span, "%d.", &b.line); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		if _, err := fmt.Sscanf(numbers, "%d %d", &b.statements, &count); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		now[place] = now[place] || count > 0
	}
	for place, reached := range now {
		if reached {
			found[place].reached++
		}
	}
	var blocks []*block
	for _, b := range found {
		if b.statements > 0 {
			blocks = append(blocks, b)
		}
	}
	slices.SortFunc(blocks, func(a, b *block) int {
		return cmp.Or(strings.Compare(a.path, b.path), a.line-b.line)
	})
	return blocks, name(blocks)
}

func within(path string, rooms []string) bool {
	return slices.ContainsFunc(rooms, func(room string) bool {
		below, all := strings.CutSuffix(filepath.Clean(room), "/...")
		return path == below || filepath.Dir(path) == below || all && strings.HasPrefix(path, below+"/")
	})
}

// name gives the blocks their keys.
func name(blocks []*block) error {
	var path string
	var lines []string
	var file *ast.File
	set := token.NewFileSet()
	for _, b := range blocks {
		if b.path != path {
			text, err := os.ReadFile(b.path)
			if err != nil {
				return err
			}
			if file, err = parser.ParseFile(set, b.path, text, parser.SkipObjectResolution); err != nil {
				return err
			}
			path, lines = b.path, strings.Split(string(text), "\n")
		}
		function := ""
		for _, d := range file.Decls {
			if set.Position(d.Pos()).Line <= b.line && b.line <= set.Position(d.End()).Line {
				if f, ok := d.(*ast.FuncDecl); ok {
					function = f.Name.Name
				}
			}
		}
		text, _, _ := strings.Cut(lines[b.line-1], " // ") // as in the lists
		b.key = fmt.Sprintf("%s: %s", function, strings.TrimSpace(text))
	}
	return nil
}
