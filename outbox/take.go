package outbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/event"
)

// rowMembers are the members of a message that may be columns of a table.
var rowMembers = []string{"event_id", "event_type", "occurred_at", "trace_id", "actor_user_id", "target_user_id", "target_user_type",
	"thread_id", "comment_id", "parent_comment_id", "depth", "content_preview", "language", "action_hint", "dedupe_key"}

// RowColumns returns the names of the columns that MessageOfRow reads.
func RowColumns() []string {
	return append(slices.Clone(rowMembers), "payload", "created_at", "available_at")
}

// MessageOfRow makes a message of a row of an application's own outbox table, values
// as SQLite has them by the names of their columns, or a [json.Number] for an integer of
// any size. A column payload that is a JSON
// object gives its members, any other payload is the member of that name; other
// columns of the names of members take precedence unless they are null. occurred_at
// is created_at where there is none. A row without a dedupe_key is the same as
// another one only by its event_id, and key names it where it has no other key: ""
// refuses it then. Rows are checked by the rules of the thread, nil for the forum. The error wraps
// [event.ErrInvalid].
func MessageOfRow(rules *Rules, values map[string]any, key string) (m Message, err error) {
	var members []Member
	put := func(name string, value json.RawMessage) {
		for i := range members {
			if members[i].Name == name {
				members[i].Value = value
				return
			}
		}
		members = append(members, Member{name, value})
	}
	if payload, ok := textOf(values["payload"]); ok {
		if members, err = parseObject([]byte(payload)); err != nil {
			members = nil
			put("payload", event.AppendString(nil, payload))
		}
	}
	for _, name := range rowMembers {
		value := values[name]
		if name == "occurred_at" && value == nil {
			value = occurred(values["created_at"])
		}
		switch v := value.(type) {
		case nil:
		case int64:
			put(name, strconv.AppendInt(nil, v, 10))
		case json.Number:
			put(name, json.RawMessage(v))
		default:
			text, ok := textOf(v)
			if !ok {
				return m, invalidf("the column %s is neither an integer nor a text", name)
			}
			put(name, event.AppendString(nil, text))
		}
	}
	if at, ok, err := rowTime(values["available_at"]); err != nil {
		return m, err
	} else if ok {
		put("available_at", event.AppendString(nil, at.UTC().Format(time.RFC3339)))
	}
	b := []byte{'{'}
	for i, member := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(event.AppendString(b, member.Name), ':'), member.Value...)
	}
	if m, err = ReadMessage(append(b, '}')); err != nil {
		return m, err
	}
	if m.EventID == "" {
		if m.EventID = key; key == "" {
			return m, invalidf("the row has no event_id")
		}
	}
	if m.DedupeKey == "" {
		m.DedupeKey = "event:" + m.EventID
	}
	return m, rules.Check(&m)
}

func textOf(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}

// occurred returns a time as ISO 8601, nil when it is none.
func occurred(value any) any {
	if at, ok, err := rowTime(value); ok && err == nil {
		return event.FormatTime(at)
	}
	return nil
}

// rowTime reads a time as databases have it: text in ISO 8601, with a space or a T
// and in UTC unless it says otherwise, as +00, +0000 or +00:00, or seconds or milliseconds since 1970.
func rowTime(value any) (at time.Time, ok bool, err error) {
	if value == nil {
		return at, false, nil
	}
	if n, ok := value.(int64); ok {
		if n > 1e11 || n < -1e11 {
			return time.UnixMilli(n), true, nil
		}
		return time.Unix(n, 0), true, nil
	}
	text, ok := textOf(value)
	if ok && text == "" {
		return at, false, nil
	}
	if ok {
		iso := strings.Replace(text, " ", "T", 1)
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05Z07", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04"} {
			if at, err = time.Parse(layout, iso); err == nil {
				return at, true, nil
			}
		}
	}
	return at, false, fmt.Errorf("%w: %.40q is not a time", event.ErrInvalid, fmt.Sprint(value))
}
