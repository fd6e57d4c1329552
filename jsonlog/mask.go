package jsonlog

import "strings"

// secretNames are the ends of names whose value is not written to a log.
var secretNames = []string{"key", "token", "secret", "password", "passwd", "pwd"}

const masked = "***"

// mask hides the secrets that handler commands and error messages tend to hold:
// the value in key=value for a name that ends like one of secretNames, whatever
// its case, and what follows "Bearer ".
func mask(s string) string {
	lower := strings.ToLower(s)
	if len(lower) != len(s) { // a letter whose lower case has another length
		return maskWords(s, s)
	}
	return maskWords(s, lower)
}

func maskWords(s, lower string) string {
	var b strings.Builder
	done := 0
	for i := 0; i < len(s); i++ {
		from := -1
		switch {
		case s[i] == '=' && isSecret(lower[:i]):
			from = i + 1
		case strings.HasPrefix(lower[i:], "bearer "):
			from = i + len("bearer ")
		}
		if from < 0 || from < done {
			continue
		}
		for from < len(s) && (s[from] == '"' || s[from] == '\'') {
			from++
		}
		end := from
		for end < len(s) && !strings.ContainsRune(" \t\r\n\"'&;,|)", rune(s[end])) {
			end++
		}
		if end > from {
			b.WriteString(s[done:from])
			b.WriteString(masked)
			done = end
		}
	}
	if done == 0 {
		return s
	}
	return b.String() + s[done:]
}

// isSecret reports whether text, in lower case, ends with the name of a secret.
func isSecret(text string) bool {
	for _, name := range secretNames {
		if strings.HasSuffix(text, name) {
			return true
		}
	}
	return false
}
