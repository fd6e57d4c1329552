package history

import "fmt"

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

// newRow returns an empty row of that entity, nil for an unknown one.
func newRow(e Entity) Row {
	switch e {
	case Workspace:
		return new(WorkspaceRow)
	case Session:
		return new(SessionRow)
	case Message:
		return new(MessageRow)
	case RunEntity:
		return new(RunRow)
	case RunStep:
		return new(StepRow)
	case ToolCall:
		return new(ToolCallRow)
	case HookRun:
		return new(HookRunRow)
	case ActionRun:
		return new(ActionRunRow)
	case Artifact:
		return new(ArtifactRow)
	case Limit:
		return new(LimitRow)
	}
	return nil
}

// NewRow returns an empty row of that entity, nil for an unknown one.
func NewRow(e Entity) Row { return newRow(e) }

// IDOf returns the id of the row.
func IDOf(r Row) string { return *r.id() }

// Belongs makes a row that hangs on a run one of that run, with that id if it is not
// "". It returns [ErrExists] for one of another run.
func Belongs(r Row, run, id string) error {
	var of *string
	switch r := r.(type) {
	case *StepRow:
		of = &r.RunID
	case *ToolCallRow:
		of = &r.RunID
	case *HookRunRow:
		of = &r.RunID
	case *ActionRunRow:
		of = &r.RunID
	case *ArtifactRow:
		of = &r.RunID
	default:
		return invalidf("a %s hangs on no run", r.Entity())
	}
	if *of != "" && *of != run {
		return fmt.Errorf("%w: %s %q of run %q", ErrExists, r.Entity(), id, *of)
	}
	*of = run
	orElse(r.id(), id)
	return nil
}
