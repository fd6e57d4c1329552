package adapter

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/bridge/trigger"
)

// DLQHeaders returns the headers of a message for the dead letter queue: its own
// and, in place of an earlier one's, the reason with its history.
func DLQHeaders(m *trigger.Message, r *trigger.Reason) map[string]string {
	h := maps.Clone(m.Headers)
	if h == nil {
		h = map[string]string{}
	}
	maps.DeleteFunc(h, func(k, _ string) bool {
		k = strings.ToLower(k)
		return strings.HasPrefix(k, "x-dlq-") || k == trigger.HeaderMessageID
	})
	h[trigger.HeaderMessageID] = m.ID
	h[trigger.HeaderDLQReason] = strings.ToValidUTF8(r.Text, "\uFFFD")
	h["x-dlq-status"] = r.Status
	h["x-dlq-attempts"] = strconv.FormatInt(r.Attempts, 10)
	h["x-dlq-deliveries"] = strconv.FormatInt(r.Deliveries, 10)
	h["x-dlq-trace-id"] = r.TraceID
	if r.BodyBytes > 0 {
		h["x-dlq-body-bytes"] = strconv.Itoa(r.BodyBytes)
	}
	for k, v := range map[string]string{"x-dlq-first-error": r.FirstError, "x-dlq-last-error": r.LastError,
		"x-dlq-first-at": iso(r.FirstAt), "x-dlq-last-at": iso(r.LastAt), "x-dlq-history": history(r.History)} {
		if v != "" {
			h[k] = v
		}
	}
	return h
}

// maxHistory bounds header x-dlq-history, in bytes.
const maxHistory = 4 << 10

// history is a JSON array of the newest attempts that fit into maxHistory, "" for none.
func history(list []trigger.Attempt) string {
	for ; len(list) > 0; list = list[1:] {
		b, err := json.Marshal(list)
		if err == nil && len(b) <= maxHistory {
			return string(b)
		}
	}
	return ""
}

func iso(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// Sorted returns the names of headers in byte order, for messages that keep one.
func Sorted(h map[string]string) []string { return slices.Sorted(maps.Keys(h)) }
