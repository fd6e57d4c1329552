package page

import (
	"encoding/json"
	"fmt"
	"html/template"
	"regexp"
	"strconv"
	"strings"
	"time"

	"thread/event"
)

// count is a number with a comma between thousands.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	from := 0
	if n < 0 {
		from = 1
	}
	for i := len(s) - 3; i > from; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// clock is a time of day in UTC.
func clock(t time.Time) string { return t.UTC().Format(time.TimeOnly) }

// parseTime reads a time of an event, zero for none.
func parseTime(s string) time.Time {
	ms, ok := event.ParseTime(s)
	if !ok {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// span is a duration in its largest unit.
func span(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// Age is how long before now a time of an event was, "" for none.
func Age(now time.Time, at *string) string {
	if at == nil {
		return ""
	}
	t := parseTime(*at)
	if t.IsZero() {
		return *at
	}
	return span(now.Sub(t))
}

// timeElement is a time as the pages show it: exact for programs, in full on hover. kind
// is "" for a time of day, else what the script keeps up to date: "age", "ago" or "in".
func timeElement(t, now time.Time, kind string) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	text, mark, full := clock(t), "", t.Format(time.DateTime)+" UTC"
	if y, m, d := t.Date(); kind == "" {
		if ny, nm, nd := now.UTC().Date(); y != ny || m != nm || d != nd {
			text = t.Format("2 Jan 2006")
		}
	} else {
		mark = ` data-a="` + kind + `"`
		text = ageText(t, now, kind)
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s"%s>%s</time>`, t.Format(event.TimeLayout), full, mark, text)) //nolint:gosec // made of times only
}

func ageText(t, now time.Time, kind string) string {
	switch d := now.Sub(t); {
	case kind == "in":
		return "in " + span(-d)
	case kind == "ago" && d < time.Second:
		return "now"
	case kind == "ago":
		return span(d) + " ago"
	default:
		return span(d)
	}
}

// took is a length of time as a table shows it: two digits at least, none too many.
func took(d time.Duration) string {
	switch s := d.Seconds(); {
	case d <= 0:
		return "0 s"
	case s < 1:
		return fmt.Sprintf("%.2f s", s)
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 60:
		return fmt.Sprintf("%.0f s", s)
	}
	return d.Round(time.Second).String()
}

// shortBytes is how much of a text a row shows.
const shortBytes = 160

// short cuts a text for a row, at the end of a rune.
func short(s string) string {
	if len(s) <= shortBytes {
		return s
	}
	return strings.ToValidUTF8(s[:shortBytes], "") + "…"
}

// line is a text of several lines as one.
func line(s string) string { return short(strings.Join(strings.Fields(short(s)), " ")) }

const (
	searchTime = 40 * time.Millisecond // for the events of one page
	whyTime    = 40 * time.Millisecond // for where an event is for each consumer
	firstPiece = 1024                  // ids that are searched at first; then twice as many each time
	pageEvents = 50
	maxPage    = 1000
	pageBytes  = 1 << 20 // of content on one page, except for a single event
)

// highlight colours JSON. Any other text is only escaped.
func highlight(text string) template.HTML {
	if !looksJSON(text) || len(text) > pageBytes {
		return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // it is escaped
	}
	var b strings.Builder
	last := 0
	for _, m := range token.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(template.HTMLEscapeString(text[last:m[0]]))
		class, end := "d", m[1]
		switch {
		case m[2] >= 0:
			class, end = "k", m[2]
		case text[m[0]] == '"':
			class = "s"
		}
		b.WriteString(`<span class="` + class + `">` + template.HTMLEscapeString(text[m[0]:end]) + `</span>`)
		last = end
	}
	b.WriteString(template.HTMLEscapeString(text[last:]))
	return template.HTML(b.String()) //nolint:gosec // every piece is escaped
}

// indented is content with line breaks, where it is an object or array of JSON.
func indented(content string) string {
	text := strings.TrimSpace(content)
	if len(text) > pageBytes || !looksJSON(text) || !json.Valid([]byte(text)) {
		return content
	}
	var b strings.Builder
	d := json.NewEncoder(&b)
	d.SetEscapeHTML(false)
	d.SetIndent("", "  ")
	if d.Encode(json.RawMessage(text)) != nil {
		return content
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func looksJSON(content string) bool {
	text := strings.TrimSpace(content)
	return text != "" && (text[0] == '{' || text[0] == '[')
}

// token is a string, with a colon behind it for a key, or a number or word of JSON.
var token = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b`)
