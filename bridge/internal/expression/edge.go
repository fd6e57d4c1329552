//go:build edge

package expression

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// Program is a path: the edge build has no other expressions, which are a third of the
// full one.
type Program struct{ path []string }

var path = regexp.MustCompile(`^[a-z_]+(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// Compile reads the name of a field of env, or a path in one such as message.order.
func Compile(text string, env any) (*Program, error) {
	text = strings.TrimSpace(text)
	if !path.MatchString(text) {
		return nil, errors.New("the edge build of thread-bridge has names such as source and message.order and no other expressions - use the full thread-bridge")
	}
	p := &Program{strings.Split(text, ".")}
	if _, ok := field(env, p.path[0]); !ok {
		return nil, fmt.Errorf("unknown name %s (column 1)", p.path[0])
	}
	return p, nil
}

func field(env any, name string) (any, bool) {
	v := reflect.ValueOf(env)
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("expr") == name {
			return v.Field(i).Interface(), true
		}
	}
	return nil, false
}

// Run computes the value over env, of the type that Compile was given.
func (p *Program) Run(env any) (any, error) {
	v, _ := field(env, p.path[0])
	for _, name := range p.path[1:] {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: %T has no element %s", strings.Join(p.path, "."), v, name)
		}
		v = m[name]
	}
	return v, nil
}
