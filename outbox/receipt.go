package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// What a handler says of a message.
const (
	Accepted = "accepted" // it was or will be acted on
	Ignored  = "ignored"  // it was decided not to act
	Refused  = "failed"   // to be tried again
)

// Receipt is what a handler says of a message in the last line of JSON that it
// prints (O-09).
type Receipt struct {
	Status      string  `json:"status"` // Accepted, Ignored or Refused
	Reason      string  `json:"reason"`
	RunID       *string `json:"run_id"`        // null: nothing was run
	NextRetryAt *string `json:"next_retry_at"` // null: the back-off decides
}

// StoredReceipt is a receipt as it is kept with its record.
type StoredReceipt struct {
	Receipt         // NextRetryAt is the time that is used
	TraceID  string `json:"trace_id"`
	Attempt  int64  `json:"attempt"`   // from 1
	ExitCode int64  `json:"exit_code"` // -1 when a signal or a crash ended the handler
	At       string `json:"at"`
}

// maxReceipts bounds the receipts that are kept of a record, the newest.
const maxReceipts = 32

// maxReason bounds the reason that is kept, in bytes.
const maxReason = 4096

// lastReceipt returns the receipt in a handler's output, and whether there is one:
// the last line that is a JSON object.
func lastReceipt(out []byte) (r Receipt, next time.Time, found bool, err error) {
	for len(out) > 0 {
		out = bytes.TrimRight(out, " \t\r\n")
		line := out[bytes.LastIndexByte(out, '\n')+1:]
		out = out[:len(out)-len(line)]
		line = bytes.TrimSpace(line)
		if !bytes.HasPrefix(line, []byte("{")) || !json.Valid(line) {
			continue
		}
		if r, next, err = parseReceipt(line); err != nil {
			err = fmt.Errorf("the receipt is not valid: %w", err)
		}
		return r, next, true, err
	}
	return r, next, false, nil
}

func parseReceipt(line []byte) (r Receipt, next time.Time, err error) {
	var raw struct {
		Status      string  `json:"status"`
		Reason      *string `json:"reason"`
		RunID       *ID     `json:"run_id"`
		NextRetryAt *string `json:"next_retry_at"`
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return r, next, err
	}
	r.Status = raw.Status
	if raw.Reason != nil {
		r.Reason = *raw.Reason
	}
	if raw.RunID != nil && !raw.RunID.IsNull() {
		id := raw.RunID.String()
		r.RunID = &id
	}
	switch raw.Status {
	case Accepted, Ignored, Refused:
	default:
		return r, next, fmt.Errorf("status %.40q is not accepted, ignored or failed", raw.Status)
	}
	if raw.NextRetryAt != nil {
		next, err = time.Parse(time.RFC3339, *raw.NextRetryAt)
		if err == nil && (next.Year() < 1970 || next.Year() > 9999) {
			err = fmt.Errorf("next_retry_at %.40q is out of bounds", *raw.NextRetryAt)
		}
		r.NextRetryAt = raw.NextRetryAt
	}
	return r, next, err
}
