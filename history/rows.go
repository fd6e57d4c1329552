package history

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"reflect"
	"time"
)

// keys collects the index keys of a row.
type keys struct {
	first, latest int64
	list          [][]byte
}

// Row is one row of an entity. Text that is empty, times that are zero and JSON that
// is nil are null. The columns are the fields of its type in their order, see rowFields.
// The first one is the id.
type Row interface {
	Entity() Entity
	keys(k *keys)
	subtype() string // of its history event; "" for none
	valid() error
}

// runOf returns the run that the row hangs on.
func runOf(r Row) string {
	switch r := r.(type) {
	case *StepRow:
		return r.RunID
	case *ToolCallRow:
		return r.RunID
	case *HookRunRow:
		return r.RunID
	case *ActionRunRow:
		return r.RunID
	case *ArtifactRow:
		return r.RunID
	}
	return ""
}

// WorkspaceRow is a workspace: this directory, or another one when several share a
// store.
type WorkspaceRow struct {
	ID              string
	ExternalRef     string
	Name            string
	RootPath        string
	ExecutionPolicy string
	Status          string
	Kind            string // project or chat
	Metadata        json.RawMessage
	CreatedAt       time.Time
	UpdatedAt       time.Time

	// Own says that it is the workspace of the directory that this history is in,
	// which was then at Path and had Inode.
	Own   bool
	Path  string
	Inode string
}

// SessionRow is a session.
type SessionRow struct {
	ID              string
	WorkspaceID     string // "" for the directory's own
	SubjectRef      string // who it is for, in the words of another system
	AgentName       string // the agent that it was made with
	ActiveAgentName string // the agent that it has now
	Title           string
	Status          string // active when it is made without one
	LastRunAt       time.Time
	AuthContext     json.RawMessage
	CreatedAt       time.Time
	UpdatedAt       time.Time
}

// MessageRow is a message of a session. Content is a string or an array of parts as
// the AI SDK has them, and is kept byte for byte.
type MessageRow struct {
	ID        string
	SessionID string
	RunID     string // may be ""
	Role      string // user, assistant, tool or system
	Content   json.RawMessage
	Metadata  json.RawMessage
	CreatedAt time.Time
}

// RunRow is one run of an agent.
type RunRow struct {
	ID                 string
	WorkspaceID        string // "" for the directory's own
	SessionID          string // may be ""
	ParentRunID        string
	TriggerType        string // message, manual_action, api_action, hook or system
	TriggerRef         string
	InitiatorRef       string // who it is for; the session's subject when it is made without one
	AgentName          string
	EffectiveAgentName string // the agent that it has now
	SwitchCount        int64
	Status             string
	CancelRequestedAt  time.Time
	StartedAt          time.Time
	EndedAt            time.Time
	HeartbeatAt        time.Time // while it runs, the time of its beat
	ErrorCode          string
	ErrorMessage       string
	Metadata           json.RawMessage
	CreatedAt          time.Time

	// Attempt counts how often it was started, from 1; 0 before. A writer that has
	// another one is late.
	Attempt int64
	// Supervised says that a process of this host holds a lock for as long as it runs.
	Supervised bool
	// BeatEvery is how often it beats, in milliseconds; 0 for the default.
	BeatEvery int64 `column:"beat_every_ms,opt"`
}

// TraceOf returns the trace context that a run was given, "" where there is none.
func TraceOf(r *RunRow) (traceparent, requestID string) {
	var in struct {
		Traceparent string `json:"traceparent"`
		RequestID   string `json:"request_id"`
	}
	if len(r.Metadata) == 0 || json.Unmarshal(r.Metadata, &in) != nil {
		return "", ""
	}
	return in.Traceparent, in.RequestID
}

// StepRow is one step of a run.
type StepRow struct {
	ID        string
	RunID     string
	Seq       int64  // from 1 on, unique in its run; 0 for the next one
	StepType  string // model_call, or any other
	Name      string
	AgentName string
	Status    string
	Input     json.RawMessage
	Output    json.RawMessage
	StartedAt time.Time
	EndedAt   time.Time
}

// ToolCallRow is one call of a tool.
type ToolCallRow struct {
	ID         string
	RunID      string
	StepID     string
	SourceType string // native, action, skill or tool
	ToolName   string
	Request    json.RawMessage
	Response   json.RawMessage
	Status     string
	DurationMS int64 `column:",opt"`
	StartedAt  time.Time
	EndedAt    time.Time
}

// HookRunRow is one run of a hook, with what it changed.
type HookRunRow struct {
	ID           string
	RunID        string
	HookName     string
	EventName    string
	Capabilities json.RawMessage
	Patch        json.RawMessage
	Status       string
	StartedAt    time.Time
	EndedAt      time.Time
	ErrorMessage string
}

// ActionRunRow is one run of an action.
type ActionRunRow struct {
	ID         string
	RunID      string
	ActionName string
	CallerType string
	Input      json.RawMessage
	Output     json.RawMessage
	Status     string
	StartedAt  time.Time
	EndedAt    time.Time
}

// ArtifactRow is something that a run has made.
type ArtifactRow struct {
	ID         string
	RunID      string
	Type       string
	Path       string
	ContentRef string
	Metadata   json.RawMessage
	CreatedAt  time.Time
}

// Entity implements Row.
func (*WorkspaceRow) Entity() Entity { return Workspace }

// Entity implements Row.
func (*SessionRow) Entity() Entity { return Session }

// Entity implements Row.
func (*MessageRow) Entity() Entity { return Message }

// Entity implements Row.
func (*RunRow) Entity() Entity { return RunEntity }

// Entity implements Row.
func (*StepRow) Entity() Entity { return RunStep }

// Entity implements Row.
func (*ToolCallRow) Entity() Entity { return ToolCall }

// Entity implements Row.
func (*HookRunRow) Entity() Entity { return HookRun }

// Entity implements Row.
func (*ActionRunRow) Entity() Entity { return ActionRun }

// Entity implements Row.
func (*ArtifactRow) Entity() Entity { return Artifact }

func (r *WorkspaceRow) subtype() string { return r.Status }

func (r *SessionRow) subtype() string { return r.Status }

func (r *MessageRow) subtype() string { return r.Role }

func (r *RunRow) subtype() string { return r.Status }

// Duration returns how long the run took, or has taken by now.
func (r *RunRow) Duration(now time.Time) time.Duration {
	switch {
	case r.StartedAt.IsZero():
		return 0
	case r.EndedAt.IsZero():
		return max(0, now.Sub(r.StartedAt))
	}
	return max(0, r.EndedAt.Sub(r.StartedAt))
}

func (r *StepRow) subtype() string { return r.Status }

func (r *ToolCallRow) subtype() string { return r.Status }

func (r *HookRunRow) subtype() string { return r.Status }

func (r *ActionRunRow) subtype() string { return r.Status }

func (r *ArtifactRow) subtype() string { return r.Type }

// Entity is the kind of a row, and the type of its history events.
type Entity string

// The entities, in the order in which deleting a session deletes what hangs on it.
const (
	Artifact  Entity = "artifact"
	ActionRun Entity = "action_run"
	HookRun   Entity = "hook_run"
	ToolCall  Entity = "tool_call"
	RunStep   Entity = "run_step"
	RunEntity Entity = "run"
	Message   Entity = "message"
	Session   Entity = "session"
	Workspace Entity = "workspace"
	Limit     Entity = "limit"
)

// LimitRow bounds the runs of a subject or of a workspace, or the starts of queued runs.
type LimitRow struct {
	ID        string // scope and ref
	Scope     string // subject, workspace, or one of StartsOf…
	Ref       string // whose; "" for every subject that has no separate limit, or for the own workspace
	Active    int64  `column:",opt"` // how many runs may be active at once; 0 for any number
	Rate      int64  `column:",opt"` // how many may be started or enqueued within Per; 0 for any number
	PerMS     int64  `column:",opt"`
	CreatedAt time.Time
}

func (r *LimitRow) subtype() string { return r.Scope }

var rowTypes = map[Entity]func() Row{
	Workspace: func() Row { return new(WorkspaceRow) },
	Session:   func() Row { return new(SessionRow) },
	Message:   func() Row { return new(MessageRow) },
	RunEntity: func() Row { return new(RunRow) },
	RunStep:   func() Row { return new(StepRow) },
	ToolCall:  func() Row { return new(ToolCallRow) },
	HookRun:   func() Row { return new(HookRunRow) },
	ActionRun: func() Row { return new(ActionRunRow) },
	Artifact:  func() Row { return new(ArtifactRow) },
	Limit:     func() Row { return new(LimitRow) },
}

// NewRow returns an empty row of that entity, nil for an unknown one.
func NewRow(e Entity) Row {
	if fn := rowTypes[e]; fn != nil {
		return fn()
	}
	return nil
}

// IDOf returns the id of the row.
func IDOf(r Row) string { return *idOf(r) }

// idOf returns where the id of the row is.
func idOf(r Row) *string { return reflect.ValueOf(r).Elem().Field(0).Addr().Interface().(*string) }

// compact is the state of columns that go through the compact form.
type compact struct {
	in  string // what of it is not read yet
	out []byte
}

// uvarint takes a number off the front.
func (p *compact) uvarint() (n uint64, ok bool) {
	for shift := 0; shift < 64 && len(p.in) > 0; shift += 7 {
		b := p.in[0]
		p.in = p.in[1:]
		if n |= uint64(b&0x7F) << shift; b < 0x80 {
			return n, true
		}
	}
	return 0, false
}

// bytes takes a text off the front; there is none at the end.
func (p *compact) bytes() (string, error) {
	if p.in == "" {
		return "", nil
	}
	n, ok := p.uvarint()
	if !ok || n > uint64(len(p.in)) {
		return "", errCompact
	}
	s := p.in[:n]
	p.in = p.in[n:]
	return s, nil
}

// varint takes a number off the front; there is 0 at the end.
func (p *compact) varint() (int64, error) {
	if p.in == "" {
		return 0, nil
	}
	n, ok := p.uvarint()
	if !ok {
		return 0, errCompact
	}
	return int64(n>>1) ^ -int64(n&1), nil
}

func (p *compact) putText(s string) {
	p.out = append(binary.AppendUvarint(p.out, uint64(len(s))), s...)
}

func (p *compact) putNumber(n int64) { p.out = binary.AppendVarint(p.out, n) }

func (p *compact) putTime(t time.Time) {
	ms := int64(0)
	if !t.IsZero() {
		if ms = t.UnixMilli(); ms >= 0 {
			ms++
		}
	}
	p.putNumber(ms)
}

// time returns the time of a number that putTime has put.
func (p *compact) time() (time.Time, error) {
	switch ms, err := p.varint(); {
	case ms == 0 || err != nil:
		return time.Time{}, err
	case ms > 0:
		return time.UnixMilli(ms - 1).UTC(), nil
	default:
		return time.UnixMilli(ms).UTC(), nil
	}
}

var errCompact = errors.New("a row is cut short")
