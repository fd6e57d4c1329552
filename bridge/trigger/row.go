package trigger

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"thread/engine"
	"thread/event"
)

// A row of the ledger is valid if and only if its sum fits and it has this form, in
// which numbers are uvarints and a text has its length before it:
//
//	form       1  1
//	status     1  place in statuses
//	defaults   1  1: the trace id is made of the message's, 2: the tenant is the
//	              default one, 4: so is the event's name. That text is not there
//	at, duration in microseconds, retries, event
//	message id, trace id, queue, event name, tenant, consumer
//	agent run, error: texts of which the length is one more, 0 for none
//	model calls: one more, 0 for none
//	number of attempts, and of each its number, its time and its text
//
// Form 1 ends before the model calls. Programs before it stored rows as JSON, which
// are read, too.
const rowForm = 2

const (
	rowTrace = 1 << iota
	rowTenant
	rowName
)

var statuses = [...]string{StatusStored, StatusSuccess, StatusFailed, StatusRejected, StatusParseError, StatusDuplicate}

const tracePrefix = "queue-"

// Row is what the ledger has of one message. It is in the transaction of its event,
// so neither is there without the other.
type Row struct {
	At         string  `json:"at"`
	TraceID    string  `json:"trace_id"`
	MessageID  string  `json:"message_id"`
	Queue      string  `json:"queue"`
	EventName  string  `json:"event_name"`
	TenantID   string  `json:"tenant_id"`
	Status     string  `json:"status"`
	DurationMS float64 `json:"duration_ms"` // from the intake to the status
	AgentRunID *string `json:"agent_run_id"`
	RetryCount int64   `json:"retry_count"`
	Error      *string `json:"error"`
	Event      int64   `json:"event"` // id, 0: none was stored
	Consumer   string  `json:"consumer,omitempty"`
	// ModelCalls is how often the handler called a model, nil when it did not say.
	ModelCalls *int64 `json:"model_calls"`
	// Attempts are those at handling the event that failed, the newest
	// engine.MaxHistory of those that were seen, in their order.
	Attempts []Attempt `json:"attempts,omitempty"`

	at int64 // At, in milliseconds since 1970
}

func (r *Row) encode() []byte {
	b := make([]byte, 3, 128)
	b[0] = rowForm
	for i, s := range statuses {
		if s == r.Status {
			b[1] = byte(i)
		}
	}
	for _, n := range [...]int64{r.at, int64(math.Round(r.DurationMS * 1000)), r.RetryCount, r.Event} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	text := func(s string, bit byte, usual bool) {
		if usual {
			b[2] |= bit
			return
		}
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	text(r.MessageID, 0, false)
	text(r.TraceID, rowTrace, len(r.TraceID) == len(tracePrefix)+len(r.MessageID) && r.TraceID[:len(tracePrefix)] == tracePrefix && r.TraceID[len(tracePrefix):] == r.MessageID)
	text(r.Queue, 0, false)
	text(r.EventName, rowName, r.EventName == defaultEventName)
	text(r.TenantID, rowTenant, r.TenantID == DefaultTenant)
	text(r.Consumer, 0, false)
	for _, s := range [...]*string{r.AgentRunID, r.Error} {
		if s == nil {
			b = append(b, 0)
			continue
		}
		b = append(binary.AppendUvarint(b, uint64(len(*s))+1), *s...)
	}
	calls := uint64(0)
	if r.ModelCalls != nil {
		calls = uint64(*r.ModelCalls) + 1
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, calls), uint64(len(r.Attempts)))
	for _, a := range r.Attempts {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(a.Number)), uint64(a.At.UnixMilli()))
		text(a.Error, 0, false)
	}
	return b
}

var errRowForm = errors.New("not a row of the ledger")

func decodeRow(b []byte) (r Row, err error) {
	if len(b) > 0 && b[0] == '{' { // of a program before this form
		at := time.Time{}
		if err = json.Unmarshal(b, &r); err == nil {
			at, err = time.Parse(time.RFC3339, r.At)
		}
		if err != nil {
			return Row{}, fmt.Errorf("%w: %w: %w", engine.ErrCorrupt, errRowForm, err)
		}
		r.at = at.UnixMilli()
		return r, nil
	}
	if len(b) < 3 || b[0] < 1 || b[0] > rowForm || int(b[1]) >= len(statuses) {
		return r, fmt.Errorf("%w: %w", engine.ErrCorrupt, errRowForm)
	}
	bad := false
	rest, defaults := b[3:], b[2]
	number := func() uint64 {
		n, w := binary.Uvarint(rest)
		if w <= 0 {
			bad, rest = true, nil
			return 0
		}
		rest = rest[w:]
		return n
	}
	take := func(n uint64) string {
		if n > uint64(len(rest)) {
			bad, rest = true, nil
			return ""
		}
		s := string(rest[:n])
		rest = rest[n:]
		return s
	}
	text := func(bit byte, usual string) string {
		if defaults&bit != 0 {
			return usual
		}
		return take(number())
	}
	maybe := func() *string {
		n := number()
		if n == 0 {
			return nil
		}
		s := take(n - 1)
		return &s
	}
	r.Status = statuses[b[1]]
	r.at = int64(number())
	r.At = string(event.AppendTime(nil, r.at))
	r.DurationMS = float64(int64(number())) / 1000
	r.RetryCount, r.Event = int64(number()), int64(number())
	r.MessageID = text(0, "")
	r.TraceID = text(rowTrace, tracePrefix+r.MessageID)
	r.Queue = text(0, "")
	r.EventName = text(rowName, defaultEventName)
	r.TenantID = text(rowTenant, DefaultTenant)
	r.Consumer = text(0, "")
	r.AgentRunID, r.Error = maybe(), maybe()
	if b[0] > 1 {
		if calls := int64(number()) - 1; calls >= 0 {
			r.ModelCalls = &calls
		}
		for n := number(); n > 0 && !bad; n-- {
			r.Attempts = append(r.Attempts, Attempt{int64(number()), time.UnixMilli(int64(number())).UTC(), text(0, "")})
		}
	}
	if bad || len(rest) > 0 {
		return Row{}, fmt.Errorf("%w: %w", engine.ErrCorrupt, errRowForm)
	}
	return r, nil
}
