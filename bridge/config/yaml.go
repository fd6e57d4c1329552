// Package config reads the YAML files of triggers and publishers. It reports
// everything that is wrong at once, each with its line.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"thread/internal/similar"
)

// Problem is something wrong in a file.
type Problem struct {
	Line int // from 1; 0: no line, something is missing
	What string
}

// Error holds all problems of a file, in the order of their lines, variables
// that are not set first.
type Error struct {
	Path     string
	Problems []Problem
}

func (e *Error) Error() string {
	var list []string
	for _, p := range e.Problems {
		if p.Line > 0 {
			list = append(list, fmt.Sprintf("line %d: %s", p.Line, p.What))
		} else {
			list = append(list, p.What)
		}
	}
	return fmt.Sprintf("%s: %s", e.Path, strings.Join(list, "; "))
}

// node is a value of the file: a mapping, a list or a scalar.
type node struct {
	line   int
	keys   []string // of a mapping, in their order
	fields map[string]*node
	list   []*node
	kind   kind
	text   string // of a scalar, ${…} replaced
	raw    string // of a scalar, as it stands in the file
}

type kind int

const (
	scalar kind = iota
	null
	mapping
	sequence
)

func (k kind) String() string { return [...]string{"a value", "null", "a mapping", "a list"}[k] }

// file is one file while it is read.
type file struct {
	path     string
	problems []Problem
	unset    []string       // variables that are named and not set
	unsetAt  map[string]int // the lines that name them first
}

func newFile(path string) *file { return &file{path: path, unsetAt: map[string]int{}} }

func (f *file) bad(line int, format string, args ...any) {
	f.problems = append(f.problems, Problem{line, fmt.Sprintf(format, args...)})
}

// err returns the problems, unset variables first: they may be why
// the others are there.
func (f *file) err() error {
	if len(f.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(f.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	var first []Problem
	for _, name := range f.unset {
		first = append(first, Problem{f.unsetAt[name], "${" + name + "} is not set"})
	}
	return &Error{f.path, append(first, f.problems...)}
}

// maxFileBytes is far above any configuration.
const maxFileBytes = 1 << 20

// read returns the mapping below key, or the root mapping when there is no such key.
func (f *file) read(section string) *node { return f.below(f.root(), section) }

func (f *file) below(root *node, section string) *node {
	if root == nil || root.fields[section] == nil {
		return root
	}
	s := root.fields[section]
	if s.kind != mapping {
		f.bad(s.line, "%s must be a mapping, it is %s", section, s.kind)
		return nil
	}
	return s
}

// readList is read for a key that may hold a list of mappings.
func (f *file) readList(section string) []*node {
	root := f.root()
	switch {
	case root == nil:
		return nil
	case root.fields[section] == nil || root.fields[section].kind != sequence:
		if n := f.below(root, section); n != nil {
			return []*node{n}
		}
		return nil
	}
	list := root.fields[section].list
	if len(list) == 0 {
		f.bad(root.fields[section].line, "%s is an empty list", section)
	}
	for _, n := range list {
		if n.kind != mapping {
			f.bad(n.line, "%s must be a list of mappings, there is %s", section, n.kind)
			return nil
		}
	}
	return list
}

// root returns the root mapping.
func (f *file) root() *node {
	info, err := os.Stat(f.path)
	if err == nil && info.Size() > maxFileBytes {
		err = fmt.Errorf("it has more than %d bytes", maxFileBytes)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(f.path)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		f.bad(0, "there is no such file")
		return nil
	case err != nil:
		f.bad(0, "%v", err)
		return nil
	}
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		line, what := 0, err.Error()
		var at yaml.Error
		if errors.As(err, &at) {
			what = at.GetMessage()
			if tk := at.GetToken(); tk != nil {
				line = tk.Position.Line
			}
		}
		f.bad(line, "not YAML: %s", what)
		return nil
	}
	var root *node
	for _, doc := range tree.Docs {
		if doc.Body != nil {
			root = f.convert(doc.Body)
			break
		}
	}
	if root == nil || root.kind != mapping {
		f.bad(1, "the file must hold a mapping")
		return nil
	}
	return root
}

func (f *file) convert(a ast.Node) *node {
	n := &node{line: a.GetToken().Position.Line}
	switch a := a.(type) {
	case *ast.MappingNode:
		f.mapping(n, a.Values)
	case *ast.MappingValueNode:
		f.mapping(n, []*ast.MappingValueNode{a})
	case *ast.SequenceNode:
		n.kind = sequence
		for _, v := range a.Values {
			n.list = append(n.list, f.convert(v))
		}
	case *ast.NullNode:
		n.kind = null
	case *ast.StringNode:
		n.set(f, a.Value)
	case *ast.LiteralNode:
		n.set(f, a.Value.Value)
	case *ast.AnchorNode:
		return f.convert(a.Value)
	case *ast.TagNode:
		return f.convert(a.Value)
	case *ast.AliasNode:
		f.bad(n.line, "aliases (*%s) are not supported: write the value out", a.Value)
		n.kind = null
	default:
		n.raw = a.GetToken().Value
		n.text = n.raw
	}
	return n
}

func (f *file) mapping(n *node, values []*ast.MappingValueNode) {
	n.kind, n.fields = mapping, map[string]*node{}
	for _, v := range values {
		name := v.Key.GetToken().Value
		if n.fields[name] != nil {
			f.bad(v.Key.GetToken().Position.Line, "%s is given twice", name)
			continue
		}
		child := f.convert(v.Value)
		child.line = v.Key.GetToken().Position.Line
		n.keys = append(n.keys, name)
		n.fields[name] = child
	}
}

var reference = regexp.MustCompile(`\$\{([^}]*)\}`)

// set replaces ${NAME} by the environment and ${file:PATH} by a file's text without
// its last newline. A variable that is not set is empty, and noted.
func (n *node) set(f *file, text string) {
	n.raw = text
	n.text = reference.ReplaceAllStringFunc(text, func(m string) string {
		name := m[2 : len(m)-1]
		if path, ok := strings.CutPrefix(name, "file:"); ok {
			data, err := os.ReadFile(path)
			if err != nil {
				f.bad(n.line, "%v", err)
			}
			return strings.TrimRight(string(data), "\r\n")
		}
		v, ok := os.LookupEnv(name)
		if !ok && !slices.Contains(f.unset, name) {
			f.unset = append(f.unset, name)
			f.unsetAt[name] = n.line
		}
		return v
	})
}

// field says where the value of a key goes. It returns what is wrong, "" for
// nothing.
type field func(f *file, name string, n *node) string

// fill hands the keys of a mapping to their fields.
func (f *file) fill(prefix string, n *node, fields map[string]field) {
	for _, name := range n.keys {
		set := fields[name]
		child := n.fields[name]
		if set == nil {
			f.bad(child.line, "%s%s is not a key%s", prefix, name, didYouMean(name, fields))
			continue
		}
		if what := set(f, prefix+name, child); what != "" {
			f.bad(child.line, "%s", what)
		}
	}
}

// didYouMean proposes the key that is most like name, or lists all.
func didYouMean(name string, fields map[string]field) string {
	keys := slices.Sorted(maps.Keys(fields))
	if best := similar.To(name, keys); best != "" {
		return ": did you mean " + best + "?"
	}
	return ": use one of " + strings.Join(keys, ", ")
}

func textField(to *string) field {
	return func(_ *file, name string, n *node) string {
		if n.kind != scalar && n.kind != null {
			return name + " must be a text, it is " + n.kind.String()
		}
		*to = n.text
		return ""
	}
}

func intField[T int | int64](to *T) field {
	return func(_ *file, name string, n *node) string {
		v, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 10, 64)
		if n.kind != scalar || err != nil {
			return fmt.Sprintf("%s must be a whole number, got %q", name, n.text)
		}
		*to = T(v)
		return ""
	}
}

func floatField(to *float64) field {
	return func(_ *file, name string, n *node) string {
		v, err := strconv.ParseFloat(n.text, 64)
		if n.kind != scalar || err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			return fmt.Sprintf("%s must be a number, got %q", name, n.text)
		}
		*to = v
		return ""
	}
}

func boolField(to *bool) field {
	return func(_ *file, name string, n *node) string {
		switch strings.ToLower(n.text) {
		case "true", "yes", "on":
			*to = true
		case "false", "no", "off":
			*to = false
		default:
			return fmt.Sprintf("%s must be true or false, got %q", name, n.text)
		}
		return ""
	}
}

// listField takes a list, or a text with commas.
func listField(to *[]string) field {
	return func(_ *file, name string, n *node) string {
		*to = nil
		switch n.kind {
		case sequence:
			for _, x := range n.list {
				if x.kind != scalar {
					return name + " must be a list of texts"
				}
				*to = append(*to, x.text)
			}
		case scalar:
			for part := range strings.SplitSeq(n.text, ",") {
				if part = strings.TrimSpace(part); part != "" {
					*to = append(*to, part)
				}
			}
		case mapping:
			return name + " must be a list of texts"
		}
		return ""
	}
}

// wordsField takes a command: a list of words, or one word. A text with blanks would be
// the name of a program with blanks.
func wordsField(to *[]string) field {
	return func(f *file, name string, n *node) string {
		if n.kind != scalar {
			return listField(to)(f, name, n)
		}
		if strings.ContainsAny(strings.TrimSpace(n.text), " \t\n") {
			return fmt.Sprintf("%s must be a list of words such as [./policy, --strict], it is one text with blanks", name)
		}
		if *to = nil; n.text != "" {
			*to = []string{strings.TrimSpace(n.text)}
		}
		return ""
	}
}

func mapField(to *map[string]string) field {
	return func(f *file, name string, n *node) string {
		if n.kind != mapping {
			return name + " must be a mapping, it is " + n.kind.String()
		}
		*to = map[string]string{}
		for _, k := range n.keys {
			if n.fields[k].kind != scalar {
				f.bad(n.fields[k].line, "%s.%s must be a text", name, k)
				continue
			}
			(*to)[k] = n.fields[k].text
		}
		return ""
	}
}

func section(fields map[string]field) field {
	return func(f *file, name string, n *node) string {
		if n.kind != mapping {
			return name + " must be a mapping, it is " + n.kind.String()
		}
		f.fill(name+".", n, fields)
		return ""
	}
}
