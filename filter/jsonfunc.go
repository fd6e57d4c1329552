package filter

import (
	"thread/filter/internal/sqljson"
	"thread/filter/internal/sqltext"
)

// path checks the path argument of a JSON function.
func (c *checker) path(n, arg *node) {
	ok := false
	if arg.op == opLiteral && arg.lit.k == text {
		n.aux.path, ok = sqljson.ParsePath(arg.lit.s)
	}
	if !ok {
		c.fail(arg.pos, "a JSON path that is not supported", `write a literal like '$.name', '$."a b"', '$.list[0]' or '$[#-1]'`)
	}
}

// arrow checks -> and ->>. What is not the same in all versions of SQLite on the
// right side is refused.
func (c *checker) arrow(n *node) {
	c.value(n.left)
	n.inherit(n.left)
	n.fails = true
	n.aux = &aux{}
	r := n.right
	switch {
	case r.op != opLiteral || r.word:
	case r.lit.k == integer && r.lit.i >= 0 && r.lit.i < 1e9:
		n.aux.path = []sqljson.Step{{Index: int(r.lit.i)}}
		return
	case r.lit.k == text && isPlainLabel(r.lit.s):
		n.aux.path = []sqljson.Step{{Label: &r.lit.s}}
		return
	case r.lit.k == text:
		var ok bool
		if n.aux.path, ok = sqljson.ParsePath(r.lit.s); ok {
			return
		}
	}
	c.fail(r.pos, "the right side of an arrow that means different things in different versions of SQLite",
		`write a plain name, an index from 0, or a path: '$."a.b"', '$[#-1]'`)
}

func isPlainLabel(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x80 || c == '$' || !isNameByte(c) || i == 0 && sqltext.IsDigit(c) {
			return false
		}
	}
	return s != ""
}

// jsonSQL is a valid JSON value as an SQL value.
func jsonSQL(v string) value {
	switch v[0] {
	case '{', '[':
		return textValue(sqljson.Minify(v))
	case '"':
		return textValue(sqljson.Unescape(v[1 : len(v)-1]))
	case 't', 'f':
		return boolValue(v[0] == 't')
	case 'n':
		return value{}
	}
	n := sqltext.ScanNumber(v)
	if n.Real {
		return realValue(n.F)
	}
	return intValue(n.I)
}

// jsonOf evaluates a JSON function on x, which is not NULL.
func jsonOf(fn function, x value, path []sqljson.Step) (value, error) {
	v, ok := sqljson.Trim(x.text())
	if fn == fnJSONValid {
		return boolValue(ok), nil
	}
	if !ok {
		return value{}, errJSON
	}
	if v, ok = sqljson.Find(v, path); !ok {
		return value{}, nil
	}
	switch fn {
	case fnJSONType:
		return textValue(sqljson.Kind(v)), nil
	case fnJSONArrayLength:
		if v[0] != '[' {
			return intValue(0), nil
		}
		return intValue(int64(sqljson.Count(v))), nil
	}
	return jsonSQL(v), nil
}

// arrow evaluates -> (JSON text) and ->> (SQL value).
func arrow(o op, x value, path []sqljson.Step) (value, error) {
	if x.k == null {
		return x, nil
	}
	v, ok := sqljson.Trim(x.text())
	if !ok {
		return value{}, errJSON
	}
	if v, ok = sqljson.Find(v, path); !ok {
		return value{}, nil
	}
	if o == opArrow {
		return textValue(sqljson.Minify(v)), nil
	}
	return jsonSQL(v), nil
}

// Path is a JSON path, as json_extract takes it: $ with .label, ."label", [N]
// and [#-N]. It may be used by many goroutines.
type Path struct{ steps []sqljson.Step }

// CompilePath returns the path that text is, and false when it is none.
func CompilePath(text string) (*Path, bool) {
	steps, ok := sqljson.ParsePath(text)
	if !ok {
		return nil, false
	}
	return &Path{steps}, true
}

// Text returns the value at the path as the text of what json_extract gives, and
// "" where that is NULL or an error: nothing is there, or content is not JSON.
func (p *Path) Text(content string) string {
	v, ok := sqljson.Trim(content)
	if ok {
		v, ok = sqljson.Find(v, p.steps)
	}
	if !ok {
		return ""
	}
	return jsonSQL(v).text()
}

// IsJSON reports whether json_valid accepts text.
func IsJSON(text string) bool { return sqljson.Valid(text) }
