package outbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"thread/event"
	"thread/internal/cli"
	"thread/outbox"
)

// readRules reads the YAML file of --rules.
func readRules(file string) (*outbox.Rules, error) {
	b, err := readFile(file)
	if err != nil {
		return nil, cli.UsageError("--rules cannot be read: "+err.Error(), "name a YAML file")
	}
	rules, err := parseRules(b)
	if err != nil {
		what := strings.TrimPrefix(err.Error(), event.ErrInvalid.Error()+": ")
		return nil, cli.UsageError(file+": "+what, "correct the file; nothing was stored")
	}
	return rules, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, outbox.MaxRulesBytes+1))
}

// parseRules reads rules from one YAML document.
func parseRules(b []byte) (*outbox.Rules, error) {
	if len(b) > outbox.MaxRulesBytes {
		return outbox.ParseRules(b) // it names the bound
	}
	file, err := parser.ParseBytes(b, 0)
	if err != nil {
		what, _, _ := strings.Cut(err.Error(), "\n") // the place and the reason; a picture of the place follows
		return nil, errors.New(what)
	}
	text := []byte("null")
	for i, doc := range file.Docs {
		if i > 0 {
			return nil, errors.New("the file has more than one document")
		}
		if doc.Body == nil {
			continue
		}
		if text, err = appendJSON(nil, doc.Body); err != nil {
			return nil, err
		}
	}
	return outbox.ParseRules(text)
}

// appendJSON appends the JSON form of a node of YAML. A number stays as it is written.
func appendJSON(b []byte, n ast.Node) (_ []byte, err error) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return appendMapping(b, n.Values)
	case *ast.MappingValueNode:
		return appendMapping(b, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		b = append(b, '[')
		for i, v := range n.Values {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, v); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	case *ast.NullNode:
		return append(b, "null"...), nil
	case *ast.StringNode:
		return event.AppendString(b, n.Value), nil
	case *ast.LiteralNode:
		return event.AppendString(b, n.Value.Value), nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return append(b, "false"...), nil // nowhere allowed, and not a text
	}
	return b, fmt.Errorf("line %d: a %s is not supported: write the value out", n.GetToken().Position.Line, n.Type())
}

func appendMapping(b []byte, values []*ast.MappingValueNode) (_ []byte, err error) {
	b = append(b, '{')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(event.AppendString(b, v.Key.GetToken().Value), ':')
		if b, err = appendJSON(b, v.Value); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}
