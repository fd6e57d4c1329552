package trigger

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
)

// What a text is searched for, in this order. Where a credential ends cannot
// be known without quotes: at white space or a separator.
var credentials = []struct {
	may     func(string) bool // quickly: false when the pattern does not match
	pattern *regexp.Regexp
	with    string
}{
	{func(s string) bool { return strings.ContainsAny(s, " \t\n\f\r") }, regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]+`), "$1$2***"},
	{func(s string) bool { return strings.Contains(s, "sk-") }, regexp.MustCompile(`\bsk-[A-Za-z0-9_-]+`), "***"},
	{func(s string) bool { return strings.Contains(s, "://") }, regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s:/@"']*):[^\s"']+@`), "$1:***@"},
	{func(s string) bool { return strings.ContainsAny(s, ":=") && mayNameSecret(s) }, regexp.MustCompile(`(?i)(\\?["']?[\w.-]*(?:passw(?:or)?d|passphrase|pwd|token|api[_-]?key|secret|credential)[\w.-]*\\?["']?\s*[:=]\s*)` +
		`("(?:[^"\\]|\\.)*"|\\"(?:[^"\\]|\\[^"])*\\"|'[^']*'|[^\s,;&}\]"'\\]+)`), "$1***"},
}

// Redact returns s with *** in the place of credentials.
func Redact(s string) string {
	for _, c := range credentials {
		if c.may(s) {
			s = c.pattern.ReplaceAllString(s, c.with)
		}
	}
	return s
}

// secretWords begin what secretKey and the last pattern look for.
var secretWords = []string{"passw", "passphrase", "pwd", "token", "api", "secret", "credential", "authorization"}

// mayNameSecret reports false when no name of a secret is in s: nearly every text of
// the log is such a one, and the patterns would cost more than to store the message.
func mayNameSecret(s string) bool {
	for i := range len(s) {
		switch c := s[i] | 0x20; {
		case s[i] >= 0x80:
			return true // there are letters that fold to s and k
		case c == 'p', c == 't', c == 'a', c == 's', c == 'c':
			for _, w := range secretWords {
				if len(s)-i >= len(w) && c == w[0] && strings.EqualFold(s[i:i+len(w)], w) {
					return true
				}
			}
		}
	}
	return false
}

var secretKey = regexp.MustCompile(`(?i)passw(?:or)?d|passphrase|pwd|token|api[_-]?key|secret|credential|authorization`)

// IsSecretKey reports whether the value of a setting or header of that name is not
// to be shown.
func IsSecretKey(name string) bool { return mayNameSecret(name) && secretKey.MatchString(name) }

// RedactValue returns a value of a configuration for printing: maps and lists with
// *** for what has the name of a secret, texts as Redact gives them.
func RedactValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			if IsSecretKey(k) && x != nil {
				out[k] = "***"
			} else {
				out[k] = RedactValue(x)
			}
		}
		return out
	case map[string]string:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = x
		}
		return RedactValue(out)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = RedactValue(x)
		}
		return out
	case string:
		return Redact(v)
	}
	return v
}

// RedactHandler is a slog.Handler that redacts texts, errors and whatever prints
// itself, and the values of attributes with the name of a secret.
type RedactHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h RedactHandler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, Redact(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(redactAttr(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs implements slog.Handler.
func (h RedactHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = redactAttr(a)
	}
	return RedactHandler{h.Handler.WithAttrs(clean)}
}

// WithGroup implements slog.Handler.
func (h RedactHandler) WithGroup(name string) slog.Handler {
	return RedactHandler{h.Handler.WithGroup(name)}
}

func redactAttr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch {
	case v.Kind() == slog.KindGroup:
		var inner []any
		for _, x := range v.Group() {
			inner = append(inner, redactAttr(x))
		}
		return slog.Group(a.Key, inner...)
	case IsSecretKey(a.Key):
		return slog.String(a.Key, "***")
	case v.Kind() == slog.KindString:
		return slog.String(a.Key, Redact(v.String()))
	case v.Kind() == slog.KindAny:
		switch x := v.Any().(type) {
		case map[string]any, map[string]string, []any:
			return slog.Any(a.Key, RedactValue(x))
		}
		return slog.String(a.Key, Redact(fmt.Sprint(v.Any())))
	}
	return slog.Attr{Key: a.Key, Value: v}
}
