package history

import (
	"encoding/json"
	"time"
)

// Row is one row of an entity. Text that is empty, times that are zero and JSON that
// is nil are null.
type Row interface {
	Entity() Entity
	columns(c *columns)
	keys(k *keys)
	id() *string     // where the id is
	subtype() string // of its history event; "" for none
	valid() error
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
	HeartbeatAt        time.Time // while it runs, that of its beat
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
	BeatEvery int64
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
	DurationMS int64
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

func (r *WorkspaceRow) id() *string { return &r.ID }
func (r *SessionRow) id() *string   { return &r.ID }
func (r *MessageRow) id() *string   { return &r.ID }
func (r *RunRow) id() *string       { return &r.ID }
func (r *StepRow) id() *string      { return &r.ID }
func (r *ToolCallRow) id() *string  { return &r.ID }
func (r *HookRunRow) id() *string   { return &r.ID }
func (r *ActionRunRow) id() *string { return &r.ID }
func (r *ArtifactRow) id() *string  { return &r.ID }

func (r *WorkspaceRow) subtype() string { return r.Status }
func (r *SessionRow) subtype() string   { return r.Status }
func (r *MessageRow) subtype() string   { return r.Role }
func (r *RunRow) subtype() string       { return r.Status }
func (r *StepRow) subtype() string      { return r.Status }
func (r *ToolCallRow) subtype() string  { return r.Status }
func (r *HookRunRow) subtype() string   { return r.Status }
func (r *ActionRunRow) subtype() string { return r.Status }
func (r *ArtifactRow) subtype() string  { return r.Type }

func (r *WorkspaceRow) columns(c *columns) {
	c.text("id", &r.ID)
	c.text("external_ref", &r.ExternalRef)
	c.text("name", &r.Name)
	c.text("root_path", &r.RootPath)
	c.text("execution_policy", &r.ExecutionPolicy)
	c.text("status", &r.Status)
	c.text("kind", &r.Kind)
	c.value("metadata", &r.Metadata)
	c.at("created_at", &r.CreatedAt)
	c.at("updated_at", &r.UpdatedAt)
	c.flag("own", &r.Own)
	c.text("path", &r.Path)
	c.text("inode", &r.Inode)
}

func (r *SessionRow) columns(c *columns) {
	c.text("id", &r.ID)
	c.text("workspace_id", &r.WorkspaceID)
	c.text("subject_ref", &r.SubjectRef)
	c.text("agent_name", &r.AgentName)
	c.text("active_agent_name", &r.ActiveAgentName)
	c.text("title", &r.Title)
	c.text("status", &r.Status)
	c.at("last_run_at", &r.LastRunAt)
	c.value("auth_context", &r.AuthContext)
	c.at("created_at", &r.CreatedAt)
	c.at("updated_at", &r.UpdatedAt)
}

func (r *MessageRow) columns(c *columns) {
	c.text("id", &r.ID)
	c.text("session_id", &r.SessionID)
	c.text("run_id", &r.RunID)
	c.text("role", &r.Role)
	c.value("content", &r.Content)
	c.value("metadata", &r.Metadata)
	c.at("created_at", &r.CreatedAt)
}

func (r *RunRow) columns(c *columns) {
	c.text("id", &r.ID)
	c.text("workspace_id", &r.WorkspaceID)
	c.text("session_id", &r.SessionID)
	c.text("parent_run_id", &r.ParentRunID)
	c.text("trigger_type", &r.TriggerType)
	c.text("trigger_ref", &r.TriggerRef)
	c.text("initiator_ref", &r.InitiatorRef)
	c.text("agent_name", &r.AgentName)
	c.text("effective_agent_name", &r.EffectiveAgentName)
	c.number("switch_count", &r.SwitchCount)
	c.text("status", &r.Status)
	c.at("cancel_requested_at", &r.CancelRequestedAt)
	c.at("started_at", &r.StartedAt)
	c.at("ended_at", &r.EndedAt)
	c.at("heartbeat_at", &r.HeartbeatAt)
	c.text("error_code", &r.ErrorCode)
	c.text("error_message", &r.ErrorMessage)
	c.value("metadata", &r.Metadata)
	c.at("created_at", &r.CreatedAt)
	c.number("attempt", &r.Attempt)
	c.flag("supervised", &r.Supervised)
	c.some("beat_every_ms", &r.BeatEvery)
}

func (r *StepRow) columns(c *columns) {
	c.text("id", &r.ID)
	c.text("run_id", &r.RunID)
	c.number("seq", &r.Seq)
	c.text("step_type", &r.StepType)
	c.text("name", &r.Name)
	c.text("agent_name", &r.AgentName)
	c.text("status", &r.Status)
	c.value("input", &r.Input)
	c.value("output", &r.Output)
	c.at("started_at", &r.StartedAt)
	c.at("ended_at", &r.EndedAt)
}

func (r *ToolCallRow) columns(c *columns) {
	c.text("id", &r.ID)
	c.text("run_id", &r.RunID)
	c.text("step_id", &r.StepID)
	c.text("source_type", &r.SourceType)
	c.text("tool_name", &r.ToolName)
	c.value("request", &r.Request)
	c.value("response", &r.Response)
	c.text("status", &r.Status)
	c.some("duration_ms", &r.DurationMS)
	c.at("started_at", &r.StartedAt)
	c.at("ended_at", &r.EndedAt)
}

func (r *HookRunRow) columns(c *columns) {
	c.text("id", &r.ID)
	c.text("run_id", &r.RunID)
	c.text("hook_name", &r.HookName)
	c.text("event_name", &r.EventName)
	c.value("capabilities", &r.Capabilities)
	c.value("patch", &r.Patch)
	c.text("status", &r.Status)
	c.at("started_at", &r.StartedAt)
	c.at("ended_at", &r.EndedAt)
	c.text("error_message", &r.ErrorMessage)
}

func (r *ActionRunRow) columns(c *columns) {
	c.text("id", &r.ID)
	c.text("run_id", &r.RunID)
	c.text("action_name", &r.ActionName)
	c.text("caller_type", &r.CallerType)
	c.value("input", &r.Input)
	c.value("output", &r.Output)
	c.text("status", &r.Status)
	c.at("started_at", &r.StartedAt)
	c.at("ended_at", &r.EndedAt)
}

func (r *ArtifactRow) columns(c *columns) {
	c.text("id", &r.ID)
	c.text("run_id", &r.RunID)
	c.text("type", &r.Type)
	c.text("path", &r.Path)
	c.text("content_ref", &r.ContentRef)
	c.value("metadata", &r.Metadata)
	c.at("created_at", &r.CreatedAt)
}
