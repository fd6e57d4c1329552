package filter

// Path is a JSON path, as json_extract takes it: $ with .label, ."label", [N]
// and [#-N]. It may be used by many goroutines.
type Path struct{ steps []step }

// CompilePath returns the path that text is, and false when it is none.
func CompilePath(text string) (*Path, bool) {
	steps, ok := parsePath(text)
	if !ok {
		return nil, false
	}
	return &Path{steps}, true
}

// Text returns the value at the path as the text of what json_extract gives, and
// "" where that is NULL or an error: nothing is there, or content is not JSON.
func (p *Path) Text(content string) string {
	v, ok := jsonTrim(content)
	if ok {
		v, ok = jsonFind(v, p.steps)
	}
	if !ok {
		return ""
	}
	return jsonSQL(v).text()
}
