// Package redact replaces credentials in texts by ***: in logs, in errors, and in what a
// handler printed before it failed. It makes no promise to library users.
package redact

import (
	"regexp"
	"strings"
	"sync"
)

// pattern is one form of credentials. A text that may reports false for does not match;
// without may, that is secretName.
type pattern struct {
	may  func(s string) bool
	expr func() *regexp.Regexp
	with string
}

func form(may func(string) bool, expr, with string) pattern {
	// A push that logs no credential compiles no expression.
	return pattern{may, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) }), with}
}

const (
	// names are parts of names whose values are credentials.
	names = `(?:passw(?:or)?d|passphrase|passcode|pwd|token|api[_-]?key|access[_-]?key|private[_-]?key|account[_-]?key|secret|credential)`
	// quoted is a text in quotes, of which a limit may have cut off the end.
	quoted = `"(?:[^"\\]|\\.)*(?:"|$)|\\"(?:[^"\\]|\\[^"])*(?:\\"|$)|'[^']*(?:'|$)`
	// word ends at white space or a separator: without quotes its end is not known.
	word = `[^\s,;&}\]"'\\]+`
)

// patterns in the order in which they are applied.
var patterns = []pattern{
	form(holds("-----"), `(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|$)`, "*** PRIVATE KEY ***"),
	// The end of a key whose begin a limit has cut off.
	form(holds("-----"), `(?:[A-Za-z0-9+/=]{16,}(?:\s|\\n|\\r)*)+[A-Za-z0-9+/=]*(?:\s|\\n|\\r)*-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----`, "*** PRIVATE KEY ***"),
	form(folds("bearer", "basic"), `(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]+`, "$1$2***"),
	form(folds("authorization", "cookie"), `(?i)((?:authorization|cookie)\\?["']?\s*[:=]\s*\[?\s*)(?:`+quoted+`|[^\r\n"'\\]+)`, "$1***"),
	form(holdsToken, `\b(?:sk-[A-Za-z0-9_-]+|(?:gh[opusr]_|github_pat_|glpat-|gldt-|xox[abeoprs]-|xapp-|npm_|pypi-|dop_v1_|hf_|shp(?:at|ca|pa|ss)_|(?:sk|rk)_(?:live|test)_|whsec_|hvs\.|AGE-SECRET-KEY-)[A-Za-z0-9_-]{6,}|A[KS]IA[A-Z0-9]{12,}|AIza[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{10,}|SG\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]+)?)`, "***"),
	form(holds("eyJ"), `\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`, "***"), // a JSON web token
	form(holds("://"), `([A-Za-z][A-Za-z0-9+.-]*://[^\s:/@"']*):[^\s"']+@`, "$1:***@"),
	form(holds("-u", "-U", "-user"), `((?:^|[\s"'\[,])(?:-[uU]|--(?:proxy-)?user)(?:["']?[\s=,]+["']?)?[^\s:"'-][^\s:"']*):[^\s"']+`, "$1:***"),
	form(nil, `(?i)((?:^|[\s"'\[,])--?[\w-]*(?:(?:`+names+`|auth|cookie)s?|pass|pw)["']?[\s,]+)(?:`+quoted+`|[^\s"'\\-][^\s"'\\]*|-[^\s"'\\-][^\s"'\\]*)`, "$1***"),
	form(nil, `(?i)(\\?["']?[\w.-]*`+names+`[\w.-]*\\?["']?\s*[:=]\s*)(?:`+quoted+`|`+word+`)`, "$1***"),
	form(nil, `(?i)((?:\b|_)pass\\?["']?\s*[:=]\s*)(?:`+quoted+`|`+word+`)`, "$1***"),
	form(holds("?key=", "&key="), `([?&]key=)`+word, "$1***"),
}

// Text returns s with *** in the place of credentials.
func Text(s string) string {
	named := secretName(s)
	for i := range patterns {
		if p := &patterns[i]; p.may == nil && named || p.may != nil && p.may(s) {
			s = p.expr().ReplaceAllString(s, p.with)
		}
	}
	return s
}

var secretKey = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + names + `|authorization|cookie`)
})

// Name reports whether the value of a setting or header of that name is a credential.
func Name(name string) bool { return secretName(name) && secretKey().MatchString(name) }

// holds reports whether one of the texts is in s.
func holds(texts ...string) func(string) bool {
	return func(s string) bool {
		for _, t := range texts {
			if strings.Contains(s, t) {
				return true
			}
		}
		return false
	}
}

// holdsToken is holds for the beginnings of tokens. It is asked about each message id
// and name in a log, most of which have a hyphen.
var holdsToken = func() func(string) bool {
	var by [256][]string // the beginnings, by their first byte
	for _, w := range []string{"sk-", "sk_", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-", "xoxa", "xoxb", "xoxe", "xoxo", "xoxp", "xoxr", "xoxs",
		"xapp-", "npm_", "pypi-", "dop_v1_", "hf_", "shpat_", "shpca_", "shppa_", "shpss_", "whsec_", "hvs.", "AGE-SECRET-KEY-", "AKIA", "ASIA", "AIza", "ya29.", "SG."} {
		by[w[0]] = append(by[w[0]], w)
	}
	return func(s string) bool {
		for i := range len(s) {
			for _, w := range by[s[i]] {
				if strings.HasPrefix(s[i:], w) {
					return true
				}
			}
		}
		return false
	}
}()

// secretName reports false when no part of a secret's name is in s: for nearly every
// text of a log, and the expressions would cost more than to store its message.
var secretName = folds("pass", "pw", "token", "api", "access", "private", "account", "secret", "credential", "auth", "cookie")

// folds reports whether one of the words, in lower case, may be in s in any case.
func folds(words ...string) func(string) bool {
	var by [256][]string // the words, by their first byte in either case
	for _, w := range words {
		by[w[0]], by[w[0]-' '] = append(by[w[0]], w), append(by[w[0]], w)
	}
	return func(s string) bool {
		for i := range len(s) {
			if s[i] >= 0x80 {
				return true // there are letters that fold to s and k
			}
			for _, w := range by[s[i]] {
				if len(s)-i >= len(w) && s[i+1]|' ' == w[1] && strings.EqualFold(s[i:i+len(w)], w) {
					return true
				}
			}
		}
		return false
	}
}
