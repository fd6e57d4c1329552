// Package sqs is the adapter for a queue of AWS SQS.
package sqs

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

func init() {
	adapter.Register(adapter.Spec{
		Type: "sqs", Summary: "a queue of AWS SQS, standard or FIFO", Keys: []adapter.Key{
			{Name: "region", Required: true, Help: "The region of the queue, such as eu-central-1."},
			{Name: "endpoint", Help: "Another address than AWS has: https://host:port."},
			{Name: "access_key_id", Help: "By default AWS_ACCESS_KEY_ID of the environment."},
			{Name: "secret_access_key", Kind: adapter.Secret, Help: "By default AWS_SECRET_ACCESS_KEY of the environment."},
			{Name: "session_token", Kind: adapter.Secret, Help: "By default AWS_SESSION_TOKEN of the environment, when the key is, too."},
			{Name: "wait", Kind: adapter.Duration, Default: "20s", Help: "How long one request waits for messages, at most 20s."},
			{Name: "visibility_timeout", Kind: adapter.Duration, Default: "30s", Help: "When SQS delivers again what was not deleted, 1s to 12h."},
			{Name: "max_in_flight", Kind: adapter.Number, Default: "1000", Help: "How many messages may be held for a handler."},
			{Name: "group_id", Default: "thread", Help: "Publishers: the group of messages without a key, in FIFO queues."},
			{Name: "connect_timeout", Kind: adapter.Duration, Default: "30s", Help: "How long to try to connect."},
			{Name: "ca_file", Kind: adapter.File, Help: "Certificates that sign the endpoint's, PEM; by default the system's certificates."},
		},
		Caps:       caps,
		OutCaps:    outCaps,
		Source:     func(s *adapter.Settings) (trigger.Source, error) { return newSource(s), nil },
		Sink:       func(s *adapter.Settings) (trigger.Sink, error) { return &sink{s: s}, nil },
		Check:      check,
		CheckQueue: checkQueue,
	})
}

var (
	caps    = trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "whatever the downtime", Requeue: true, DLQ: true}
	outCaps = trigger.Caps{Promise: trigger.AtLeastOnce, Condition: "with a message id; FIFO queues drop what is sent again within 5 minutes"}
)

func check(s *adapter.Settings) (faults []adapter.Fault) {
	bad := func(key, format string, args ...any) {
		faults = append(faults, adapter.Fault{Key: key, What: fmt.Sprintf(format, args...)})
	}
	if e := s.Text("endpoint"); e != "" {
		u, err := url.Parse(e)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			bad("endpoint", "it must be https://host:port")
		case u.User != nil:
			bad("endpoint", "credentials do not stand in the address: give access_key_id and secret_access_key")
		case s.RequireTLS && u.Scheme == "http":
			bad("endpoint", "%s has no TLS: require_tls is true", e)
		}
	}
	if (s.Text("access_key_id") == "") != (s.Text("secret_access_key") == "") {
		bad("access_key_id", "access_key_id and secret_access_key belong together")
	}
	if d := s.Duration("wait"); d > 20*time.Second {
		bad("wait", "it must be at most 20s, got %s", d)
	}
	if d := s.Duration("visibility_timeout"); d < time.Second || d > 12*time.Hour {
		bad("visibility_timeout", "it must be from 1s to 12h, got %s", d)
	}
	if n := s.Int("max_in_flight"); n < 1 {
		bad("max_in_flight", "it must be positive, got %d", n)
	}
	return faults
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}(\.fifo)?$`)

func checkQueue(queue string, _ bool) string {
	if strings.Contains(queue, "://") {
		u, err := url.Parse(queue)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || !nameForm.MatchString(nameOf(queue)) {
			return "queue_name is not the address of a queue"
		}
		return ""
	}
	if !nameForm.MatchString(queue) || len(queue) > 80 {
		return fmt.Sprintf("queue_name must be at most 80 letters, digits, hyphens and underscores, with .fifo at the end of a FIFO queue, got %q", queue)
	}
	return ""
}

// nameOf returns the name of a queue, which may be given by its address or ARN.
func nameOf(queue string) string { return queue[strings.LastIndexAny(queue, "/:")+1:] }

func isFIFO(queue string) bool { return strings.HasSuffix(queue, ".fifo") }

// credentials are the credentials of the file, else of the environment.
type credentials struct{ s *adapter.Settings }

// Retrieve implements aws.CredentialsProvider.
func (c credentials) Retrieve(context.Context) (aws.Credentials, error) {
	k := aws.Credentials{AccessKeyID: c.s.Text("access_key_id"), SecretAccessKey: c.s.Text("secret_access_key"), SessionToken: c.s.Text("session_token")}
	if k.AccessKeyID == "" {
		k = aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: os.Getenv("AWS_SESSION_TOKEN")}
	}
	if k.AccessKeyID == "" || k.SecretAccessKey == "" {
		return k, errors.New("there are no credentials: set adapter.connection.access_key_id and secret_access_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	return k, nil
}

func newClient(s *adapter.Settings) (*sqs.Client, error) {
	conf, err := s.TLS()
	if err != nil {
		return nil, err
	}
	h := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		if conf != nil {
			t.TLSClientConfig = conf
		} else if t.TLSClientConfig == nil {
			t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	})
	o := sqs.Options{Region: s.Text("region"), Credentials: credentials{s}, HTTPClient: h}
	if e := s.Text("endpoint"); e != "" {
		o.BaseEndpoint = aws.String(e)
	}
	return sqs.New(o), nil
}

// find returns the address of a queue.
func find(ctx context.Context, c *sqs.Client, queue string) (string, error) {
	if strings.Contains(queue, "://") {
		return queue, nil
	}
	in := &sqs.GetQueueUrlInput{QueueName: aws.String(nameOf(queue))}
	if parts := strings.Split(queue, ":"); len(parts) == 6 { // an ARN
		in.QueueOwnerAWSAccountId = aws.String(parts[4])
	}
	out, err := c.GetQueueUrl(ctx, in)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.QueueUrl), nil
}

// open makes a client and asks for the queue's attributes.
func open(ctx context.Context, s *adapter.Settings) (*sqs.Client, string, map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, max(s.Duration("connect_timeout"), 100*time.Millisecond))
	defer cancel()
	c, err := newClient(s)
	if err != nil {
		return nil, "", nil, err
	}
	address, err := find(ctx, c, s.Queue)
	var out *sqs.GetQueueAttributesOutput
	if err == nil {
		out, err = c.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &address, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	}
	if errors.Is(err, context.DeadlineExceeded) { // the client does not tell what it has tried
		err = fmt.Errorf("no answer from %s within %s: %w", cmp.Or(s.Text("endpoint"), "SQS in "+s.Text("region")), s.Duration("connect_timeout"), err)
	}
	if err != nil {
		return nil, "", nil, fmt.Errorf("queue %s: %w", s.Queue, err)
	}
	return c, address, out.Attributes, nil
}

var errNotConnected = errors.New("not connected")
