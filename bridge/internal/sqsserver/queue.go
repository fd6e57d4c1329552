package sqsserver

import (
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxBytes     = 256 << 10
	dedupeWindow = 5 * time.Minute
)

type queue struct {
	name       string
	attributes map[string]string
	messages   []*message // in the order they came
	dedupe     map[string]*message
}

type message struct {
	id, body, group, dedupe string
	attributes              map[string]attribute
	sent                    time.Time
	first                   time.Time
	number                  int64
	visible                 time.Time // from when on
	receipt                 string    // of the latest receive, "": never
	receives                int
	gone                    bool
}

func (q *queue) fifo() bool { return strings.HasSuffix(q.name, ".fifo") }

func (s *Server) url(name string) string { return s.URL + "/" + Account + "/" + name }

func arn(name string) string { return "arn:aws:sqs:" + Region + ":" + Account + ":" + name }

func (s *Server) create(in *request) (any, error) {
	if strings.HasSuffix(in.QueueName, ".fifo") != (in.Attributes["FifoQueue"] == "true") {
		return nil, bad("InvalidParameterValue", "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix")
	}
	if q := s.queues[in.QueueName]; q == nil {
		s.queues[in.QueueName] = &queue{name: in.QueueName, attributes: maps.Clone(in.Attributes), dedupe: map[string]*message{}}
		if in.Attributes == nil {
			s.queues[in.QueueName].attributes = map[string]string{}
		}
	}
	return object{"QueueUrl": s.url(in.QueueName)}, nil
}

func (s *Server) attributes(q *queue) map[string]string {
	a := map[string]string{"VisibilityTimeout": "30"}
	maps.Copy(a, q.attributes)
	ready, out := 0, 0
	for _, m := range q.messages {
		if m.visible.After(s.now()) {
			out++
		} else {
			ready++
		}
	}
	a["QueueArn"], a["ApproximateNumberOfMessages"], a["ApproximateNumberOfMessagesNotVisible"] = arn(q.name), strconv.Itoa(ready), strconv.Itoa(out)
	return a
}

func (s *Server) send(q *queue, e *entry) (object, error) {
	if err := valid(e); err != nil {
		return nil, err
	}
	if q.fifo() != (e.MessageGroupId != "") {
		return nil, bad("MissingParameter", "The request must contain the parameter MessageGroupId, of a FIFO queue only.")
	}
	dedupe := ""
	if q.fifo() {
		if dedupe = e.MessageDeduplicationId; dedupe == "" {
			if q.attributes["ContentBasedDeduplication"] != "true" {
				return nil, bad("InvalidParameterValue", "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
			}
			sum := sha256.Sum256([]byte(e.MessageBody))
			dedupe = hex.EncodeToString(sum[:])
		}
		if m := q.dedupe[dedupe]; m != nil && s.now().Sub(m.sent) < dedupeWindow {
			return answer(m), nil // accepted, and not delivered
		}
	}
	s.number++
	m := &message{id: uuid(), body: e.MessageBody, group: e.MessageGroupId, dedupe: dedupe, attributes: e.MessageAttributes, sent: s.now(), number: s.number}
	m.visible = m.sent.Add(time.Duration(e.DelaySeconds) * time.Second)
	if dedupe != "" {
		q.dedupe[dedupe] = m
	}
	q.messages = append(q.messages, m)
	s.change()
	return answer(m), nil
}

func answer(m *message) object {
	o := object{"MessageId": m.id, "MD5OfMessageBody": sum(md5.New(), m.body)}
	if len(m.attributes) > 0 {
		o["MD5OfMessageAttributes"] = attributesSum(m.attributes)
	}
	if m.group != "" {
		o["SequenceNumber"] = fmt.Sprintf("%020d", m.number)
	}
	return o
}

func valid(e *entry) error {
	size := len(e.MessageBody)
	if size == 0 {
		return bad("MissingParameter", "The request must contain the parameter MessageBody.")
	}
	if len(e.MessageAttributes) > 10 {
		return bad("InvalidParameterValue", "Number of message attributes [%d] exceeds the allowed maximum [10].", len(e.MessageAttributes))
	}
	texts := []string{e.MessageBody}
	for name, a := range e.MessageAttributes {
		if a.DataType == "String" && a.StringValue == "" {
			return bad("InvalidParameterValue", "Message attribute '%s' must contain a non-empty value.", name)
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" || len(name) > 256 {
			return bad("InvalidParameterValue", "The message attribute name '%s' is invalid.", name)
		}
		size += len(name) + len(a.DataType) + len(a.StringValue) + len(a.BinaryValue)
		texts = append(texts, a.StringValue)
	}
	if size > maxBytes {
		return bad("InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", maxBytes)
	}
	for _, t := range texts {
		for _, r := range t {
			if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
				return bad("InvalidMessageContents", "Invalid characters found.")
			}
		}
	}
	return nil
}

// receive waits for messages, at most for as long as the call says. s.mu is held.
func (s *Server) receive(r *http.Request, q *queue, in *request) (any, error) {
	if in.MaxNumberOfMessages > 10 || in.WaitTimeSeconds > 20 {
		return nil, bad("InvalidParameterValue", "MaxNumberOfMessages must be at most 10 and WaitTimeSeconds at most 20")
	}
	end := time.Now().Add(time.Duration(in.WaitTimeSeconds) * time.Second)
	for {
		if list := s.take(q, in); len(list) > 0 {
			return object{"Messages": list}, nil
		}
		next := end // a message becomes visible without any change
		for _, m := range q.messages {
			if at := m.visible.Add(-s.skew); at.Before(next) && at.After(time.Now()) {
				next = at
			}
		}
		if !time.Now().Before(end) {
			return object{}, nil
		}
		changed := s.changed
		s.mu.Unlock()
		timer := time.NewTimer(time.Until(next) + time.Millisecond)
		select {
		case <-r.Context().Done():
		case <-s.ended:
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		s.mu.Lock()
		if r.Context().Err() != nil {
			return object{}, nil
		}
		select {
		case <-s.ended:
			return object{}, nil
		default:
		}
	}
}

func (s *Server) take(q *queue, in *request) (list []object) {
	now := s.now()
	busy := map[string]bool{}
	if q.fifo() {
		for _, m := range q.messages {
			if m.visible.After(now) {
				busy[m.group] = true
			}
		}
	}
	visibility := 30
	if v, err := strconv.Atoi(q.attributes["VisibilityTimeout"]); err == nil {
		visibility = v
	}
	if in.VisibilityTimeout != nil {
		visibility = *in.VisibilityTimeout
	}
	for _, m := range slices.Clone(q.messages) {
		if len(list) >= max(1, in.MaxNumberOfMessages) {
			break
		}
		if m.visible.After(now) || q.fifo() && busy[m.group] {
			continue
		}
		if s.redrive(q, m) {
			continue
		}
		m.receives++
		if m.receives == 1 {
			m.first = now
		}
		m.visible, m.receipt = now.Add(time.Duration(visibility)*time.Second), uuid()
		list = append(list, s.show(m))
	}
	return list
}

func (s *Server) show(m *message) object {
	o := answer(m)
	delete(o, "SequenceNumber")
	delete(o, "MD5OfMessageBody")
	o["MD5OfBody"], o["Body"], o["ReceiptHandle"] = sum(md5.New(), m.body), m.body, m.receipt
	a := map[string]string{"SentTimestamp": strconv.FormatInt(m.sent.UnixMilli(), 10), "ApproximateReceiveCount": strconv.Itoa(m.receives),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.first.UnixMilli(), 10), "SenderId": AccessKey}
	if m.group != "" {
		a["MessageGroupId"], a["MessageDeduplicationId"], a["SequenceNumber"] = m.group, m.dedupe, fmt.Sprintf("%020d", m.number)
	}
	o["Attributes"] = a
	if len(m.attributes) > 0 {
		o["MessageAttributes"] = m.attributes
	}
	return o
}

// redrive moves a message that was received too often.
func (s *Server) redrive(q *queue, m *message) bool {
	var policy struct {
		DeadLetterTargetArn string      `json:"deadLetterTargetArn"`
		MaxReceiveCount     json.Number `json:"maxReceiveCount"`
	}
	if json.Unmarshal([]byte(q.attributes["RedrivePolicy"]), &policy) != nil {
		return false
	}
	most, _ := policy.MaxReceiveCount.Int64()
	to := s.queues[policy.DeadLetterTargetArn[strings.LastIndexByte(policy.DeadLetterTargetArn, ':')+1:]]
	if to == nil || int64(m.receives) < most {
		return false
	}
	q.messages = slices.DeleteFunc(q.messages, func(x *message) bool { return x == m })
	m.receipt = ""
	to.messages = append(to.messages, m)
	return true
}

func (q *queue) byReceipt(receipt string) *message {
	for _, m := range q.messages {
		if m.receipt == receipt && receipt != "" {
			return m
		}
	}
	return nil
}

// delete with a receipt that is not the latest succeeds and deletes nothing; of a FIFO
// queue it fails once the visibility has ended.
func (s *Server) delete(q *queue, receipt string) error {
	m := q.byReceipt(receipt)
	if m == nil {
		if q.fifo() {
			return bad("ReceiptHandleIsInvalid", "The receipt handle has expired.")
		}
		return nil
	}
	if q.fifo() && !m.visible.After(s.now()) {
		return bad("InvalidParameterValue", "Value %s for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.", receipt)
	}
	m.gone = true
	q.messages = slices.DeleteFunc(q.messages, func(x *message) bool { return x == m })
	s.change()
	return nil
}

func (s *Server) visibility(q *queue, receipt string, seconds *int) error {
	m := q.byReceipt(receipt)
	if m == nil {
		return bad("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
	}
	if !m.visible.After(s.now()) {
		return bad("MessageNotInflight", "The message is not in flight.")
	}
	m.visible = s.now().Add(time.Duration(*seconds) * time.Second)
	s.change()
	return nil
}

func uuid() string {
	b := make([]byte, 16)
	rand.Read(b)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func sum(h hash.Hash, s string) string {
	h.Write([]byte(s))
	return hex.EncodeToString(h.Sum(nil))
}

// attributesSum is the MD5 of attributes as AWS forms it.
func attributesSum(list map[string]attribute) string {
	h := md5.New()
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
		h.Write(b)
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		a := list[name]
		part([]byte(name))
		part([]byte(a.DataType))
		if strings.HasPrefix(a.DataType, "Binary") {
			h.Write([]byte{2})
			part(a.BinaryValue)
		} else {
			h.Write([]byte{1})
			part([]byte(a.StringValue))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
