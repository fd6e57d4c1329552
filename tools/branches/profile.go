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

	"thread/tools/cover"
)

// block is a piece of code without a branch in it, over several runs.
type block struct {
	*cover.Block
	reached int    // by how many runs
	wide    bool   // by the tests of programs
	key     string // function and line: what stays while lines and files move
}

// add adds the blocks of the rooms in one run to the blocks of runs before it.
func add(now []*cover.Block, rooms []string, before []*block) ([]*block, error) {
	found := map[string]*block{}
	for _, b := range before {
		found[b.Place] = b
	}
	blocks := before
	for _, n := range now {
		if !within(n.Path, rooms) || n.Statements == 0 {
			continue
		}
		b := found[n.Place]
		if b == nil {
			b = &block{Block: n}
			blocks = append(blocks, b)
		}
		if n.Reached {
			b.reached++
		}
	}
	slices.SortFunc(blocks, func(a, b *block) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), a.Line-b.Line)
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
		if b.Path != path {
			text, err := os.ReadFile(b.Path)
			if err != nil {
				return err
			}
			if file, err = parser.ParseFile(set, b.Path, text, parser.SkipObjectResolution); err != nil {
				return err
			}
			path, lines = b.Path, strings.Split(string(text), "\n")
		}
		function := ""
		for _, d := range file.Decls {
			if set.Position(d.Pos()).Line <= b.Line && b.Line <= set.Position(d.End()).Line {
				if f, ok := d.(*ast.FuncDecl); ok {
					function = f.Name.Name
				}
			}
		}
		text, _, _ := strings.Cut(lines[b.Line-1], " // ") // as in the lists
		b.key = fmt.Sprintf("%s: %s", function, strings.TrimSpace(text))
	}
	return nil
}
