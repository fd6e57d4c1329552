package compat

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"thread/event"
	"thread/history"
	"thread/internal/historymirror"
)

// rowFrom makes a row of the columns of a table.
func rowFrom(e history.Entity, columns []string, values []any) (history.Row, error) {
	in := map[string]json.RawMessage{}
	for j, name := range columns {
		switch v := values[j].(type) {
		case nil:
		case time.Time:
			in[name] = quoted(event.FormatTime(v))
		case []byte:
			in[name] = quoted(string(v))
		case string:
			in[name] = quoted(v)
		default:
			if in[name] = json.RawMessage(fmt.Sprint(v)); !json.Valid(in[name]) { // infinite
				in[name] = quoted(fmt.Sprint(v))
			}
		}
	}
	row := history.NewRow(e)
	var payload string
	if json.Unmarshal(in["payload"], &payload) == nil {
		members := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(payload), &members); err != nil {
			_ = history.ParseJSON(row, rowJSON(in)) // for its id
			return row, fmt.Errorf("its payload is not a JSON object: %w", err)
		}
		for name, v := range members {
			in[snake(name)] = v
		}
	} else {
		for _, c := range historymirror.TableOf(historymirror.Tables, e).Columns() {
			if c.Kind == historymirror.JSON && in[c.Name] != nil {
				in[c.Name] = unpacked(in[c.Name], c.Name == "content")
			}
		}
	}
	fix(e, in)
	return row, history.ParseJSON(row, rowJSON(in))
}

func quoted(s string) json.RawMessage {
	return json.RawMessage(event.AppendString(nil, strings.ToValidUTF8(s, "\uFFFD")))
}

// rowJSON returns the members as an object, each byte for byte.
func rowJSON(in map[string]json.RawMessage) []byte {
	b := []byte{'{'}
	for name, v := range in {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(event.AppendString(b, name), ':'), v...)
	}
	return append(b, '}')
}

// unpacked returns the JSON in a column of text: what is none is a text itself, and so is
// the content of a message unless it is a string or an array.
func unpacked(v json.RawMessage, content bool) json.RawMessage {
	var s string
	if json.Unmarshal(v, &s) != nil {
		return v
	}
	text := strings.TrimSpace(s)
	if !json.Valid([]byte(text)) || content && text[0] != '"' && text[0] != '[' {
		return v
	}
	return json.RawMessage(text)
}

// fix says in the words of today what an older version said.
func fix(e history.Entity, in map[string]json.RawMessage) {
	if e == history.RunEntity && string(in["trigger_type"]) == `"user_message"` {
		in["trigger_type"] = json.RawMessage(`"message"`)
	}
	// A message had the call that it is the result of in separate columns.
	if id := in["tool_call_id"]; e == history.Message && id != nil && string(in["role"]) == `"tool"` && len(in["content"]) > 0 && in["content"][0] == '"' {
		part := map[string]any{"type": "tool-result", "toolCallId": id, "output": map[string]any{"type": "text", "value": in["content"]}}
		if name := in["tool_name"]; name != nil {
			part["toolName"] = name
		}
		if b, err := json.Marshal([]any{part}); err == nil {
			in["content"] = b
		}
	}
	for _, name := range []string{"created_at", "updated_at", "started_at", "ended_at", "last_run_at", "cancel_requested_at", "heartbeat_at"} {
		var s string
		if json.Unmarshal(in[name], &s) != nil {
			continue
		}
		if at, err := time.Parse(time.DateTime, s); err == nil { // as SQLite's datetime() has it
			in[name] = quoted(event.FormatTime(at))
		}
	}
}

// snake returns the name of a column for the name of a member: heartbeatAt is heartbeat_at.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
