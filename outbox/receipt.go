package outbox

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"thread/engine"
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
	Receipt // RunID is the id of the recorded run, NextRetryAt is the time that is used
	// ExternalRunID is the run_id that the handler itself has printed, when its run is
	// recorded under another id; else null.
	ExternalRunID *string `json:"external_run_id"`
	TraceID       string  `json:"trace_id"`
	Attempt       int64   `json:"attempt"`   // from 1
	ExitCode      int64   `json:"exit_code"` // -1 when a signal or a crash ended the handler
	At            string  `json:"at"`
}

func receiptKey(id, n int64) []byte { return binary.BigEndian.AppendUint64(rowKey(id), uint64(n)) }

// receiptsOf returns all receipts of a record, oldest first.
func receiptsOf(tx *engine.Tx, id int64) (list []StoredReceipt, err error) {
	table, err := tx.Records(tableReceipts)
	if err != nil {
		return nil, err
	}
	for rec, err := range table.Ascend(receiptKey(id, 0), rowKey(id+1)) {
		if err != nil {
			return list, err
		}
		var r StoredReceipt
		if err := json.Unmarshal(rec.Value, &r); err != nil {
			return list, fmt.Errorf("%w: receipt %x of the outbox: %w", engine.ErrCorrupt, rec.Key, err)
		}
		list = append(list, r)
	}
	return list, nil
}

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
