// Package sqsserver is a server for tests that behaves as AWS SQS does: JSON protocol
// 1.0, long polls, visibility, receive counts, FIFO groups and deduplication, redrive,
// MD5 sums. Where AWS leaves a choice it takes the worse one.
package sqsserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Account and keys of the server.
const (
	Account   = "123456789012"
	Region    = "eu-central-1"
	AccessKey = "AKIDTEST"
	SecretKey = "hunter2"
)

// Server is one endpoint with its queues.
type Server struct {
	URL string

	mu      sync.Mutex
	queues  map[string]*queue
	skew    time.Duration
	changed chan struct{}
	number  int64
	refuse  map[string]error // by operation, once
	ended   chan struct{}

	Calls map[string]int // by operation
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{queues: map[string]*queue{}, changed: make(chan struct{}), ended: make(chan struct{}), refuse: map[string]error{}, Calls: map[string]int{}}
	h := httptest.NewServer(s)
	s.URL = h.URL
	t.Cleanup(func() { close(s.ended); h.CloseClientConnections(); h.Close() })
	return s
}

// Advance puts the server's clock forward.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += d
	s.change()
}

// Count returns how many calls of an operation there were.
func (s *Server) Count(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Calls[operation]
}

// FailNext makes the next call of an operation fail, before it has done anything.
func (s *Server) FailNext(operation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse[operation] = &fault{"ServiceUnavailable", "try again", 400}
}

// Left returns how many messages a queue has, visible or not.
func (s *Server) Left(queue string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queues[queue].messages)
}

// Create makes a queue.
func (s *Server) Create(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues[name] = &queue{name: name, attributes: map[string]string{}, dedupe: map[string]*message{}}
}

func (s *Server) now() time.Time { return time.Now().Add(s.skew) }

func (s *Server) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// fault is an error of SQS.
type fault struct {
	kind, message string
	status        int
}

func (f *fault) Error() string { return f.kind + ": " + f.message }

func bad(kind, format string, args ...any) error {
	return &fault{kind, fmt.Sprintf(format, args...), 400}
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	operation, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	var in request
	var out any
	var err error
	switch {
	case !ok || r.Header.Get("Content-Type") != "application/x-amz-json-1.0":
		err = bad("InvalidAction", "not JSON protocol 1.0")
	case !strings.Contains(r.Header.Get("Authorization"), "Credential="+AccessKey+"/") || !strings.Contains(r.Header.Get("Authorization"), "/"+Region+"/sqs/aws4_request"):
		err = &fault{"InvalidClientTokenId", "The security token included in the request is invalid.", 403}
	default:
		if err = json.NewDecoder(r.Body).Decode(&in); err == nil {
			out, err = s.call(r, operation, &in)
		}
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if err != nil {
		var f *fault
		if !errors.As(err, &f) {
			f = &fault{"MalformedInput", err.Error(), 400}
		}
		w.Header().Set("x-amzn-query-error", f.kind+";Sender")
		w.WriteHeader(f.status)
		out = map[string]string{"__type": "com.amazonaws.sqs#" + f.kind, "message": f.message}
	}
	_ = json.NewEncoder(w).Encode(out) // who asked may be gone
}

// request is the input of every operation.
type request struct {
	QueueName, QueueUrl           string
	Attributes                    map[string]string
	MessageBody                   string
	MessageAttributes             map[string]attribute
	MessageGroupId                string
	MessageDeduplicationId        string
	DelaySeconds                  int
	ReceiptHandle                 string
	VisibilityTimeout             *int
	MaxNumberOfMessages           int
	WaitTimeSeconds               int
	Entries                       []entry
	MessageAttributeNames         []string
	MessageSystemAttributeNames   []string
	AttributeNames                []string
	ReceiveRequestAttemptId       string
	QueueOwnerAWSAccountId        string
	Id                            string
	MessageSystemAttributes, Tags any
}

type entry struct {
	Id                     string
	MessageBody            string
	MessageAttributes      map[string]attribute
	MessageGroupId         string
	MessageDeduplicationId string
	DelaySeconds           int
	ReceiptHandle          string
	VisibilityTimeout      *int
}

type attribute struct {
	DataType    string
	StringValue string `json:",omitempty"`
	BinaryValue []byte `json:",omitempty"`
}

type object = map[string]any

func (s *Server) call(r *http.Request, operation string, in *request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Calls[operation]++
	if err := s.refuse[operation]; err != nil {
		delete(s.refuse, operation)
		return nil, err
	}
	switch operation {
	case "CreateQueue":
		return s.create(in)
	case "GetQueueUrl":
		if s.queues[in.QueueName] == nil {
			return nil, bad("QueueDoesNotExist", "The specified queue does not exist.")
		}
		return object{"QueueUrl": s.url(in.QueueName)}, nil
	}
	q := s.queues[in.QueueUrl[strings.LastIndexByte(in.QueueUrl, '/')+1:]]
	if q == nil {
		return nil, bad("QueueDoesNotExist", "The specified queue does not exist.")
	}
	switch operation {
	case "DeleteQueue":
		delete(s.queues, q.name)
		return object{}, nil
	case "GetQueueAttributes":
		return object{"Attributes": s.attributes(q)}, nil
	case "SetQueueAttributes":
		for k, v := range in.Attributes {
			q.attributes[k] = v
		}
		return object{}, nil
	case "SendMessage":
		return s.send(q, &entry{MessageBody: in.MessageBody, MessageAttributes: in.MessageAttributes, MessageGroupId: in.MessageGroupId,
			MessageDeduplicationId: in.MessageDeduplicationId, DelaySeconds: in.DelaySeconds})
	case "ReceiveMessage":
		return s.receive(r, q, in)
	case "DeleteMessage":
		return object{}, s.delete(q, in.ReceiptHandle)
	case "ChangeMessageVisibility":
		return object{}, s.visibility(q, in.ReceiptHandle, in.VisibilityTimeout)
	case "SendMessageBatch":
		size := 0
		for _, e := range in.Entries {
			size += len(e.MessageBody)
		}
		if size > maxBytes {
			return nil, bad("BatchRequestTooLong", "Batch requests cannot be longer than %d bytes.", maxBytes)
		}
		return batch(in.Entries, func(e *entry) (object, error) { return s.send(q, e) })
	case "DeleteMessageBatch":
		return batch(in.Entries, func(e *entry) (object, error) { return object{}, s.delete(q, e.ReceiptHandle) })
	case "ChangeMessageVisibilityBatch":
		return batch(in.Entries, func(e *entry) (object, error) {
			return object{}, s.visibility(q, e.ReceiptHandle, e.VisibilityTimeout)
		})
	}
	return nil, bad("InvalidAction", "%s", operation)
}

func batch(list []entry, do func(*entry) (object, error)) (any, error) {
	if len(list) == 0 {
		return nil, bad("EmptyBatchRequest", "There should be at least one entry.")
	}
	if len(list) > 10 {
		return nil, bad("TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10.")
	}
	ok, failed, seen := []object{}, []object{}, map[string]bool{}
	for i := range list {
		if seen[list[i].Id] {
			return nil, bad("BatchEntryIdsNotDistinct", "Id %s repeated.", list[i].Id)
		}
		seen[list[i].Id] = true
	}
	for i := range list {
		out, err := do(&list[i])
		var f *fault
		if errors.As(err, &f) {
			failed = append(failed, object{"Id": list[i].Id, "Code": f.kind, "Message": f.message, "SenderFault": true})
			continue
		}
		out["Id"] = list[i].Id
		ok = append(ok, out)
	}
	return object{"Successful": ok, "Failed": failed}, nil
}
