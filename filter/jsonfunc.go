package filter

import (
	"thread/filter/internal/sqljson"
	"thread/filter/internal/sqltext"
)

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
