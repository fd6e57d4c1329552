package thread_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A file of a package uses what files below it define (docs/ARCHITECTURE.md).
const (
	mostLevels = 10 // from the lowest file to the highest
	mostClimbs = 5  // arrows from a file to one above it
)

// listed is a package as go list -json prints it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// TestLevels puts the files of each package in the order in which the fewest arrows climb:
// an arrow is a use of a type, a field, a function, a method, a variable or a constant that
// another file defines.
func TestLevels(t *testing.T) {
	modules := []string{".", "bridge", "net"}
	if testing.Short() {
		modules = modules[:1] // the others take long to compile
	}
	for _, module := range modules {
		exports, packages := map[string]string{}, []listed{}
		for _, p := range list(t, module) {
			exports[p.ImportPath] = p.Export
			if !p.DepOnly && len(p.GoFiles) > 1 && !strings.Contains(p.ImportPath, "/tools/") {
				packages = append(packages, p)
			}
		}
		fset := token.NewFileSet()
		imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
		for _, p := range packages {
			a, err := arrowsOf(fset, imports, p)
			if err != nil {
				t.Fatal(err)
			}
			levels, climbs := a.best()
			t.Logf("%-34s %2d files, %2d levels, %d climbing arrows", p.ImportPath, len(a.files), levels, len(climbs))
			if levels > mostLevels || len(climbs) > mostClimbs {
				t.Errorf("%s has %d levels of files (limit %d) and %d arrows that climb (limit %d). Move what is used into a file below, or what uses it into one above:\n%s",
					p.ImportPath, levels, mostLevels, len(climbs), mostClimbs, strings.Join(climbs, "\n"))
			}
		}
	}
}

func list(t *testing.T, dir string) (all []listed) {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// arrows are the uses between the files of a package.
type arrows struct {
	files []string
	uses  [][]map[string]bool // [from][to]: what is used
	arrow [][]int             // [from][to]: 1 where something is used
}

func arrowsOf(fset *token.FileSet, imports types.Importer, p listed) (*arrows, error) {
	n := len(p.GoFiles)
	a := &arrows{files: p.GoFiles, uses: make([][]map[string]bool, n), arrow: make([][]int, n)}
	var trees []*ast.File
	number := map[string]int{}
	for i, name := range p.GoFiles {
		tree, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		trees, number[filepath.Join(p.Dir, name)] = append(trees, tree), i
		a.uses[i], a.arrow[i] = make([]map[string]bool, n), make([]int, n)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: imports, Sizes: types.SizesFor("gc", "amd64")}).Check(p.ImportPath, fset, trees, info)
	if err != nil {
		return nil, err
	}
	for id, o := range info.Uses {
		switch v := o.(type) {
		case *types.Func:
			o = v.Origin()
		case *types.Var:
			o = v.Origin()
		}
		if o.Pkg() != pkg || o.Parent() != nil && o.Parent() != pkg.Scope() { // a method or a field has no parent
			continue
		}
		from, to := number[fset.Position(id.Pos()).Filename], number[fset.Position(o.Pos()).Filename]
		if _, isImport := o.(*types.PkgName); isImport || from == to {
			continue
		}
		if a.uses[from][to] == nil {
			a.uses[from][to], a.arrow[from][to] = map[string]bool{}, 1
		}
		a.uses[from][to][o.Name()] = true
	}
	return a, nil
}

// best returns how many levels the order of files has in which the fewest arrows climb, and
// what these arrows are: of those that are found from 3,000 starts, or the first one within
// the limits.
func (a *arrows) best() (levels int, climbs []string) {
	random := rand.New(rand.NewPCG(1, 2))
	order := make([]int, len(a.files))
	for i := range order {
		order[i] = i
	}
	var found []int
	for fewest, try := math.MaxInt, 0; fewest > 0 && try < 3000; try++ {
		a.improve(order)
		n, up := a.levels(order)
		if over := max(0, n-mostLevels) + max(0, up-mostClimbs); over < fewest {
			fewest, levels, found = over, n, slices.Clone(order)
		}
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	return levels, a.climbs(found)
}

// improve moves one file at a time to where fewer arrows climb, until none can. The order is
// from the lowest file on.
func (a *arrows) improve(order []int) {
	for moved := true; moved; {
		moved = false
		for i, file := range order {
			best, to := 0, i
			for _, step := range []int{-1, 1} {
				less := 0
				for j := i + step; j >= 0 && j < len(order); j += step {
					if less += step * (a.arrow[order[j]][file] - a.arrow[file][order[j]]); less < best {
						best, to = less, j
					}
				}
			}
			if to != i {
				rest := slices.Delete(slices.Clone(order), i, i+1)
				copy(order, slices.Insert(rest, to, file))
				moved = true
			}
		}
	}
}

// levels returns how many levels an order has, and how many arrows climb.
func (a *arrows) levels(order []int) (most, climbs int) {
	level := make([]int, len(order))
	for i, file := range order {
		for _, below := range order[:i] {
			if climbs += a.arrow[below][file]; a.arrow[file][below] == 1 {
				level[file] = max(level[file], level[below]+1)
			}
		}
		most = max(most, level[file]+1)
	}
	return most, climbs
}

func (a *arrows) climbs(order []int) (list []string) {
	for i, file := range order {
		for _, above := range order[i+1:] {
			if used := a.uses[file][above]; used != nil {
				list = append(list, fmt.Sprintf("%s uses, of %s above it: %s", a.files[file], a.files[above], strings.Join(slices.Sorted(maps.Keys(used)), ", ")))
			}
		}
	}
	return list
}
