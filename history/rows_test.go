package history

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// example fills every field of a row that the caller may choose.
func example(r Row) {
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		switch f.Interface().(type) {
		case string:
			f.SetString("the " + name + " \"<&>\" \\ \n ü")
		case int64:
			f.SetInt(7)
		case bool:
			f.SetBool(true)
		case time.Time:
			f.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)))
		default:
			f.SetBytes([]byte(`{ "a":[1.50, 12345678901234567890],  "b":"<>" }`))
		}
	}
}

// TestRows is H-01, H-03 and H-18: every entity has the columns of the documents, and
// comes back as it was stored, JSON byte for byte.
func TestRows(t *testing.T) {
	columnsOf := map[Entity]string{
		Workspace: "id external_ref name root_path execution_policy status kind metadata created_at updated_at own path inode",
		Session:   "id workspace_id subject_ref agent_name active_agent_name title status last_run_at auth_context created_at updated_at",
		Message:   "id session_id run_id role content metadata created_at",
		RunEntity: "id workspace_id session_id parent_run_id trigger_type trigger_ref initiator_ref agent_name effective_agent_name switch_count status cancel_requested_at started_at ended_at heartbeat_at error_code error_message metadata created_at attempt supervised beat_every_ms",
		RunStep:   "id run_id seq step_type name agent_name status input output started_at ended_at",
		ToolCall:  "id run_id step_id source_type tool_name request response status duration_ms started_at ended_at",
		HookRun:   "id run_id hook_name event_name capabilities patch status started_at ended_at error_message",
		ActionRun: "id run_id action_name caller_type input output status started_at ended_at",
		Artifact:  "id run_id type path content_ref metadata created_at",
		Limit:     "id scope ref active rate per_ms created_at",
	}
	if len(columnsOf) != len(entityTags) {
		t.Errorf("%d entities, %d of them are tested", len(entityTags), len(columnsOf))
	}
	for entity, columns := range columnsOf {
		row, empty, back := NewRow(entity), NewRow(entity), NewRow(entity)
		example(row)
		b, err := appendRow(nil, row, false)
		ok(t, err)
		ok(t, ParseJSON(back, b))
		if !reflect.DeepEqual(row, back) {
			t.Errorf("%s: %s came back as %s", entity, b, text(back))
		}
		// The columns in another order, and one that no process knows.
		in := one[map[string]json.RawMessage](t)(members(b))
		in["unknown"] = raw(`[1,"x"]`)
		shuffled := one[[]byte](t)(json.Marshal(in))
		again := NewRow(entity)
		if err := ParseJSON(again, shuffled); err != nil || *idOf(again) != *idOf(row) || again.subtype() != row.subtype() {
			t.Errorf("%s came back as %s, %v", shuffled, text(again), err)
		}
		var names []string
		for _, part := range strings.Split(strings.Trim(text(empty), "{}"), ",") {
			name, _, _ := strings.Cut(part, ":")
			names = append(names, strings.Trim(name, `"`))
		}
		if got := strings.Join(names, " "); got != columns {
			t.Errorf("%s has the columns\n%s, want\n%s", entity, got, columns)
		}
		example(back)
		ok(t, ParseJSON(back, []byte(text(empty))))
		if !reflect.DeepEqual(back, empty) {
			t.Errorf("%s: null came back as %s", entity, text(back))
		}
	}
}

// TestMessageContent is H-02: content is a string or an array of parts and comes back
// byte for byte; roles are the roles of the AI SDK.
func TestMessageContent(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	for _, content := range []string{
		`"hello <b> \u00fc"`,
		`[ {"type":"text", "text":"a"},  {"type":"tool-call","toolCallId":"1","toolName":"sh","input":{"n":1.0e2}} ]`,
		"[\n\t{\"type\":\"tool-result\",\"output\":12345678901234567890}]",
	} {
		m := MessageRow{SessionID: "S", Role: "assistant", Content: raw(content)}
		ok(t, h.Put(ctx, &m))
		var got MessageRow
		ok(t, h.Get(ctx, &got, m.ID))
		if string(got.Content) != content {
			t.Errorf("%s came back as %s", content, got.Content)
		}
	}
	for _, bad := range []MessageRow{
		{SessionID: "S", Role: "robot", Content: raw(`"x"`)},
		{SessionID: "S", Role: "user", Content: raw(`{"a":1}`)},
		{SessionID: "S", Role: "user", Content: raw(`"x`)},
		{SessionID: "S", Role: "user"},
		{SessionID: "S", Role: "user", Content: raw(`["text"]`)},
		{SessionID: "S", Role: "user", Content: raw(`[null]`)},
		{SessionID: "S", Role: "user", Content: raw(`[{"type":"text","text":"a"},{"text":"b"}]`)},
		{SessionID: "S", Role: "user", Content: raw(`[{"type":7}]`)},
		{SessionID: "S", Role: "user", Content: raw(`[{"type":""}]`)},
		{Role: "user", Content: raw(`"x"`)},
	} {
		if err := h.Put(ctx, &bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", text(&bad), err)
		}
	}
	if err := h.Put(ctx, &MessageRow{SessionID: "T", Role: "user", Content: raw(`"x"`)}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if n := len(all(t, h.Messages(ctx, Query{Session: "S"}))); n != 3 {
		t.Errorf("%d messages", n)
	}
}

// TestEnumerations is H-25: what is not in a list of the documents is refused.
func TestEnumerations(t *testing.T) {
	h := inbox(t)
	r := one[*Run](t)(h.StartRun(ctx, RunRow{TriggerType: "manual_action"}))
	for _, bad := range []Row{
		&ToolCallRow{RunID: r.ID(), SourceType: "magic", ToolName: "sh"},
		&RunRow{TriggerType: "cron", Status: Queued},
		&RunRow{TriggerType: "hook", Status: "asleep"},
		&WorkspaceRow{ID: "w", Kind: "office"},
	} {
		if err := h.Put(ctx, bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", text(bad), err)
		}
	}
	for _, source := range sourceTypes {
		ok(t, h.Put(ctx, &ToolCallRow{RunID: r.ID(), SourceType: source, ToolName: "sh"}))
	}
	for _, trigger := range triggerTypes {
		ok(t, h.Put(ctx, &RunRow{TriggerType: trigger, Status: Queued}))
	}
}

// TestModelCall is H-03: one record holds all that was sent to the model, unconverted.
func TestModelCall(t *testing.T) {
	h := inbox(t)
	r := one[*Run](t)(h.StartRun(ctx, RunRow{AgentName: "coder"}))
	request := `{"model":"m","canonicalModelRef":"p/m","provider":"p","temperature":0.20,"maxTokens":100,"messages":[{"role":"user","content":"hi"}]}`
	response := `{"text":"ho","usage":{"inputTokens":3},"finishReason":"stop"}`
	s := one[StepRow](t)(r.Step(ctx, ModelCall{Request: raw(request), RequestRuntime: raw(`{"messageCount":1}`), Response: raw(response)}.Row()))
	var got StepRow
	ok(t, h.Get(ctx, &got, s.ID))
	if string(got.Input) != `{"request":`+request+`,"runtime":{"messageCount":1}}` || string(got.Output) != `{"response":`+response+`}` {
		t.Errorf("%s", text(&got))
	}
	if got.StepType != "model_call" || got.Seq != 1 || got.AgentName != "coder" || got.Status != Completed || got.EndedAt.IsZero() {
		t.Errorf("%s", text(&got))
	}
	// A step of the same seq is refused, a new version of it is not.
	if _, err := r.Step(ctx, StepRow{Seq: 1, StepType: "x"}); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	// H-03, H-25: without the request, or completed without the response, it says too little.
	for _, bad := range []ModelCall{
		{Response: raw(response)},
		{Request: raw(`"text"`), Response: raw(response)},
		{Request: raw(request)},
		{Request: raw(request), Response: raw(`[]`)},
		{Status: Running, RequestRuntime: raw(`{}`)},
	} {
		if _, err := r.Step(ctx, bad.Row()); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	got.Output = raw(`{"response":{}}`)
	if again := one[StepRow](t)(r.Step(ctx, got)); again.Seq != 1 {
		t.Errorf("%+v", again)
	}
	if next := one[StepRow](t)(r.Step(ctx, StepRow{StepType: "x"})); next.Seq != 2 {
		t.Errorf("%+v", next)
	}
}

// TestIndexKeys: keys of different parts never mix, whatever their texts are.
func TestIndexKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringOf(rapid.SampledFrom([]rune{0, 1, 'a', 'ÿ'}))
		a, b := part.Draw(t, "a"), part.Draw(t, "b")
		p, k := string(prefix('i', a)), string(indexKey('i', 5, b))
		inside := k >= p && k < string(after([]byte(p)))
		if inside != (a == b) {
			t.Fatalf("%q in %q: %v", k, p, inside)
		}
	})
}

// TestNoIdentities is H-05: the only columns about persons are references.
func TestNoIdentities(t *testing.T) {
	for entity := range entityTags {
		for _, word := range []string{"user", "password", "token", "organi", "email", "secret"} {
			if s := text(NewRow(entity)); strings.Contains(s, word) {
				t.Errorf("%s has a column with %q: %s", entity, word, s)
			}
		}
	}
}

// TestParseDamaged: text that was cut or changed is refused or read, and never out of
// bounds.
func TestParseDamaged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := NewRow(rapid.SampledFrom([]Entity{Message, RunEntity, RunStep}).Draw(t, "entity"))
		example(row)
		b, err := appendRow(nil, row, rapid.Bool().Draw(t, "nulls"))
		ok(t, err)
		if n := rapid.IntRange(0, len(b)).Draw(t, "cut"); rapid.Bool().Draw(t, "cuts") {
			b = b[:n]
		} else if n < len(b) {
			b[n] = rapid.SampledFrom([]byte(`"\\{}[],:x0`)).Draw(t, "byte")
		}
		in, err := members(b)
		got := NewRow(row.Entity())
		if err2 := ParseJSON(got, b); err2 == nil && err == nil {
			// What the fast way reads is what a map of the members says.
			slow := NewRow(row.Entity())
			c := columns{decode: true, in: in}
			if walk(slow, &c); c.err != nil || !reflect.DeepEqual(slow, got) {
				t.Fatalf("%s: %s, and by a map %s (%v)", b, text(got), text(slow), c.err)
			}
		}
	})
}
