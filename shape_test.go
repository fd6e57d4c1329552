package thread_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mostFiles is how many files a package may have that are not tests (docs/ARCHITECTURE.md).
const mostFiles = 30

// TestShape counts files of packages, and blocks under "if err == nil" that are not an early
// end: at most 1 in 1,000 lines of code. Return first where err is not nil.
func TestShape(t *testing.T) {
	files, lines := map[string]int{}, 0
	var pyramids []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || path != "." && strings.HasPrefix(d.Name(), ".") || path == "compare" || path == "uitest" || path == "tools"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files[filepath.ToSlash(filepath.Dir(path))]++
		n, found, err := shapeOf(path)
		lines, pyramids = lines+n, append(pyramids, found...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg, n := range files {
		if n > mostFiles {
			t.Errorf("%s has %d files, the limit is %d: move some into a package below it", pkg, n, mostFiles)
		}
	}
	t.Logf("%d lines of code, %d blocks under err == nil", lines, len(pyramids))
	if len(pyramids) > lines/1000 {
		t.Errorf("%d blocks under \"if err == nil\" in %d lines of code; return early:\n%s", len(pyramids), lines, strings.Join(pyramids, "\n"))
	}
}

// shapeOf counts the lines that a token other than a comment touches, and returns where
// the blocks under "if err == nil" are that do not end with a return, break or continue.
func shapeOf(path string) (lines int, pyramids []string, err error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return 0, nil, err
	}
	fset := token.NewFileSet()
	var s scanner.Scanner
	file := fset.AddFile(path, -1, len(src))
	s.Init(file, src, nil, 0)
	for last := 0; ; {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		end := file.Line(pos) + strings.Count(lit, "\n")
		lines += end - max(last, file.Line(pos)-1)
		last = end
	}
	tree, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
	if err != nil {
		return 0, nil, err
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		f, ok := n.(*ast.IfStmt)
		if !ok || f.Init != nil || len(f.Body.List) == 0 {
			return true
		}
		cond := string(src[f.Cond.Pos()-1 : f.Cond.End()-1])
		switch f.Body.List[len(f.Body.List)-1].(type) {
		case *ast.ReturnStmt, *ast.BranchStmt:
		default:
			if cond == "err == nil" {
				pyramids = append(pyramids, fmt.Sprintf("%s:%d", path, 1+strings.Count(string(src[:f.Pos()-1]), "\n")))
			}
		}
		return true
	})
	return lines, pyramids, nil
}
