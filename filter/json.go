package filter

// JSON texts are read in place: validating one and finding a value in it
// allocate nothing. Only RFC 8259 is read (docs/spec/filter.md, section 12).

// maxJSONDepth is SQLite's JSON_MAX_DEPTH.
const maxJSONDepth = 1000

// IsJSON reports whether text is one JSON value, with white space around it or not,
// nested no deeper than 1,000. Text that is not valid UTF-8 may be one.
func IsJSON(text string) bool {
	end := jsonScan(text, jsonSpace(text, 0), 0)
	return end >= 0 && jsonSpace(text, end) == len(text)
}

// jsonScan validates the value at s[i] and gives the offset after it, or -1.
func jsonScan(s string, i, depth int) int {
	if i >= len(s) {
		return -1
	}
	switch c := s[i]; {
	case c == '{':
		return jsonContainer(s, i, depth+1, true)
	case c == '[':
		return jsonContainer(s, i, depth+1, false)
	case c == '"':
		return jsonString(s, i)
	case c == '-' || isDigit(c):
		return jsonNumber(s, i)
	case c == 't':
		return jsonWord(s, i, "true")
	case c == 'f':
		return jsonWord(s, i, "false")
	case c == 'n':
		return jsonWord(s, i, "null")
	}
	return -1
}

func jsonWord(s string, i int, w string) int {
	if len(s)-i < len(w) || s[i:i+len(w)] != w {
		return -1
	}
	return i + len(w)
}

func jsonSpace(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r') {
		i++
	}
	return i
}

func jsonContainer(s string, i, depth int, object bool) int {
	if depth > maxJSONDepth {
		return -1
	}
	closing := byte(']')
	if object {
		closing = '}'
	}
	i = jsonSpace(s, i+1)
	if i < len(s) && s[i] == closing {
		return i + 1
	}
	for {
		if object {
			if i >= len(s) || s[i] != '"' {
				return -1
			}
			if i = jsonString(s, i); i < 0 {
				return -1
			}
			if i = jsonSpace(s, i); i >= len(s) || s[i] != ':' {
				return -1
			}
			i = jsonSpace(s, i+1)
		}
		if i = jsonScan(s, i, depth); i < 0 {
			return -1
		}
		if i = jsonSpace(s, i); i >= len(s) {
			return -1
		}
		switch s[i] {
		case closing:
			return i + 1
		case ',':
			i = jsonSpace(s, i+1)
		default:
			return -1
		}
	}
}

func jsonString(s string, i int) int {
	for i++; i < len(s); i++ {
		switch c := s[i]; {
		case c > '"' && c != '\\': // most of them
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			if i++; i >= len(s) {
				return -1
			}
			switch s[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if i++; i >= len(s) || !isHexDigit(s[i]) {
						return -1
					}
				}
			default:
				return -1
			}
		}
	}
	return -1
}

func jsonNumber(s string, i int) int {
	digits := func() bool {
		begin := i
		for i < len(s) && isDigit(s[i]) {
			i++
		}
		return i > begin
	}
	if s[i] == '-' {
		i++
	}
	if i < len(s) && s[i] == '0' {
		i++
	} else if !digits() {
		return -1
	}
	if i < len(s) && isDigit(s[i]) {
		return -1
	}
	if i < len(s) && s[i] == '.' {
		i++
		if !digits() {
			return -1
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

// jsonTrim gives the value of a JSON text without the white space around it, or
// false if it is not JSON. A text ends at its first NUL.
func jsonTrim(s string) (string, bool) {
	s = untilNUL(s)
	begin := jsonSpace(s, 0)
	end := jsonScan(s, begin, 0)
	if end < 0 || jsonSpace(s, end) != len(s) {
		return "", false
	}
	return s[begin:end], true
}

// jsonSkip gives the offset after the value at s[i] of a valid JSON text.
func jsonSkip(s string, i int) int {
	depth := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '"':
			i = jsonString(s, i) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// jsonElements calls visit with each element of the object or array v, for an
// object with the key in its quotes, until visit returns false.
func jsonElements(v string, visit func(key, element string) bool) {
	object := v[0] == '{'
	i := jsonSpace(v, 1)
	for v[i] != '}' && v[i] != ']' {
		key := ""
		if object {
			end := jsonString(v, i)
			key = v[i:end]
			i = jsonSpace(v, jsonSpace(v, end)+1)
		}
		end := jsonSkip(v, i)
		if !visit(key, v[i:end]) {
			return
		}
		if i = jsonSpace(v, end); v[i] == ',' {
			i = jsonSpace(v, i+1)
		}
	}
}

func jsonCount(v string) int {
	n := 0
	jsonElements(v, func(string, string) bool { n++; return true })
	return n
}

// jsonFind follows a path into a valid value.
func jsonFind(v string, path []step) (string, bool) {
	for _, p := range path {
		found := false
		next := ""
		switch {
		case p.label == nil && v[0] == '[':
			at := p.index
			if p.fromEnd {
				at = jsonCount(v) - p.index
			}
			jsonElements(v, func(_, e string) bool {
				if found = at == 0; found {
					next = e
				}
				at--
				return !found
			})
		case p.label != nil && v[0] == '{':
			jsonElements(v, func(key, e string) bool {
				if found = jsonKeyIs(key, *p.label); found {
					next = e
				}
				return !found
			})
		}
		if !found {
			return "", false
		}
		v = next
	}
	return v, true
}
