package thread_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestProse applies the banned words of tools/vale/Thread to what the programs
// print: every string of three words or more. vale itself reads only comments.
func TestProse(t *testing.T) {
	banned := bannedWords(t)
	words := regexp.MustCompile(`[a-z]+ [a-z]+ [a-z]+`)
	texts := 0
	eachFile(t, func(fset *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil || !words.MatchString(text) {
				return true
			}
			texts++
			if found := banned(text); found != "" {
				t.Errorf("%s: %q in %s", fset.Position(lit.Pos()), found, lit.Value)
			}
			return true
		})
	})
	if texts < 1000 {
		t.Errorf("only %d texts were found", texts)
	}
}

// maxCommentWords bounds a sentence in a Go comment, where a colon or a semicolon also
// ends one. Documents have 25.
const maxCommentWords = 40

// TestComments counts the words of sentences in comments, which vale does not.
func TestComments(t *testing.T) {
	end := regexp.MustCompile(`[.:;?!]["')]?(\s+|$)`)
	eachFile(t, func(fset *token.FileSet, file *ast.File) {
		for _, group := range file.Comments {
			for paragraph := range strings.SplitSeq(group.Text(), "\n\n") {
				if strings.Contains("\n"+paragraph, "\n\t") || strings.Contains(paragraph, "\n  ") {
					continue // a drawing, a table or code
				}
				for _, sentence := range end.Split(paragraph, -1) {
					if n := len(strings.Fields(sentence)); n > maxCommentWords {
						t.Errorf("%s: a sentence of %d words: %.60q…", fset.Position(group.Pos()), n, sentence)
					}
				}
			}
		}
	})
}

// bannedWords returns a function that finds what Banned.yml bans. Go's expressions have
// no lookarounds: what those except is taken out first.
func bannedWords(t *testing.T) func(text string) string {
	rules, err := os.ReadFile("tools/vale/Thread/Banned.yml")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^  '(.*)': `).FindAllSubmatch(rules, -1) {
		all = append(all, regexp.MustCompile(`\(\?<?![^)]*\)`).ReplaceAllString(string(m[1]), ""))
	}
	if len(all) < 10 {
		t.Fatalf("%d rules were found", len(all))
	}
	banned := regexp.MustCompile(`(?i)` + strings.Join(all, "|"))
	excepted := regexp.MustCompile(`(?i)there (is|are) no( such)?\b|\b(is|are) (no longer|out of)|\bno such\b|\bsuch as\b`)
	return func(text string) string { return banned.FindString(excepted.ReplaceAllString(text, "")) }
}

// excluded is how many files and folders .vale.ini does not check yet.
const excluded = 6

// TestExcluded: that number only falls.
func TestExcluded(t *testing.T) {
	config, err := os.ReadFile(".vale.ini")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range regexp.MustCompile(`(?m)^\[\{([^*}]+)\}`).FindAllSubmatch(config, -1) {
		n += strings.Count(string(m[1]), ",") + 1
	}
	if n != excluded {
		t.Errorf(".vale.ini excludes %d entries, the limit here is %d: clean what is new, or lower the limit", n, excluded)
	}
}

// eachFile parses all Go files but tests.
func eachFile(t *testing.T, visit func(*token.FileSet, *ast.File)) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		visit(fset, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
