package trigger

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"thread/internal/redact"
)

// Redact returns s with *** in the place of credentials.
func Redact(s string) string { return redact.Text(s) }

// RedactValue returns a value of a configuration for printing: maps and lists with
// *** for what has the name of a secret, texts as Redact gives them.
func RedactValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			if redact.Name(k) && x != nil {
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
			if out[i] = RedactValue(x); i > 0 {
				out[i] = redactWord(v[i-1], x, out[i])
			}
		}
		return out
	case string:
		return Redact(v)
	}
	return v
}

// redactWord returns a word of a command, which may be the value of the flag before it.
func redactWord(flag, word, redacted any) any {
	f, ok := flag.(string)
	w, isText := word.(string)
	if !ok || !isText {
		return redacted
	}
	if value, ok := strings.CutPrefix(Redact(f+" "+w), f+" "); ok {
		return value
	}
	return redacted
}

// RedactHandler is a slog.Handler that redacts texts, errors and whatever prints
// itself, and the values of attributes with the name of a secret.
type RedactHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h RedactHandler) Handle(ctx context.Context, r slog.Record) error {
	if isClean(r) {
		return h.Handler.Handle(ctx, r)
	}
	out := slog.NewRecord(r.Time, r.Level, Redact(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(redactAttr(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// isClean reports whether redaction keeps a record as it is, for the kinds of values that
// most records have; false for any other.
func isClean(r slog.Record) bool {
	clean := Redact(r.Message) == r.Message
	r.Attrs(func(a slog.Attr) bool {
		switch a.Value.Kind() {
		case slog.KindString:
			clean = clean && Redact(a.Value.String()) == a.Value.String()
		case slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindBool, slog.KindDuration, slog.KindTime:
		default:
			clean = false
		}
		clean = clean && !redact.Name(a.Key)
		return clean
	})
	return clean
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
	case redact.Name(a.Key):
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
