package history

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Row is one row of an entity. Text that is empty, times that are zero and JSON that
// is nil are null. The columns are the fields of its type in their order, see rowFields.
// The first one is the id.
type Row interface {
	Entity() Entity
	keys(k *keys)
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
func (r *SessionRow) subtype() string   { return r.Status }
func (r *MessageRow) subtype() string   { return r.Role }
func (r *RunRow) subtype() string       { return r.Status }
func (r *StepRow) subtype() string      { return r.Status }
func (r *ToolCallRow) subtype() string  { return r.Status }
func (r *HookRunRow) subtype() string   { return r.Status }
func (r *ActionRunRow) subtype() string { return r.Status }
func (r *ArtifactRow) subtype() string  { return r.Type }

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

// Belongs makes a row that hangs on a run one of that run, with that id if it is not
// "". It returns [ErrExists] for one of another run.
func Belongs(r Row, run, id string) error {
	of := textOf(r, "run_id")
	if of == nil || r.Entity() == Message {
		return invalidf("a %s hangs on no run", r.Entity())
	}
	if *of != "" && *of != run {
		return fmt.Errorf("%w: %s %q of run %q", ErrExists, r.Entity(), id, *of)
	}
	*of = run
	orElse(idOf(r), id)
	return nil
}

// PutNew stores the rows whose ids are not there yet, in their order and in one
// transaction, and returns how many they are. The errors are the errors of [History.Update] and
// [Tx.Put].
func (h *History) PutNew(ctx context.Context, rows []Row) (stored int64, err error) {
	var named [][]byte
	for _, r := range rows {
		named = append(named, keyOf(r), rowKey(RunEntity, runOf(r)))
		switch r := r.(type) {
		case *MessageRow:
			named = append(named, rowKey(Session, r.SessionID), rowKey(RunEntity, r.RunID))
		case *RunRow:
			named = append(named, rowKey(Session, r.SessionID), rowKey(RunEntity, r.ParentRunID))
		case *ToolCallRow:
			named = append(named, rowKey(RunStep, r.StepID))
		}
	}
	err = h.Update(h.wants(ctx, named...), func(tx *Tx) error {
		stored = 0
		for _, r := range rows {
			if _, there := tx.versionOf(keyOf(r)); there {
				continue
			}
			if err := tx.Put(r); err != nil {
				return fmt.Errorf("%s %q: %w", r.Entity(), IDOf(r), err)
			}
			stored++
		}
		return nil
	})
	return stored, err
}
