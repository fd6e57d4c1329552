// Package otlp exports spans over OTLP/HTTP, as binary Protobuf.
package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"thread/internal/spans"
)

// requestTime bounds one request.
const requestTime = 10 * time.Second

// The waits after a failed request: the first, and the longest.
const (
	firstWait   = time.Second
	longestWait = 30 * time.Second
)

// Client exports to one endpoint.
type Client struct {
	url      string
	header   http.Header
	http     *http.Client
	resource *resource.Resource
	version  string
	warn     func(format string, args ...any)
}

// ErrEndpoint says that an endpoint is not one.
var ErrEndpoint = errors.New("is not the URL of an OTLP/HTTP endpoint")

// New returns a client. An endpoint without a path gets /v1/traces. OTEL_EXPORTER_OTLP_HEADERS
// has headers of requests, as api-key=K,other=O, and OTEL_SERVICE_NAME a name other than
// thread. warn is called with the first failure of a series, and with the end of it.
func New(endpoint, version string, warn func(format string, args ...any)) (*Client, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q %w", endpoint, ErrEndpoint)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	c := &Client{url: u.String(), header: http.Header{}, version: version, warn: warn,
		http: &http.Client{Timeout: requestTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	for pair := range strings.SplitSeq(os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); ok && name != "" && err == nil {
			c.header.Set(name, value)
		}
	}
	c.header.Set("Content-Type", "application/x-protobuf")
	c.header.Set("Content-Encoding", "gzip")
	c.header.Set("User-Agent", "thread/"+version)
	name := os.Getenv("OTEL_SERVICE_NAME")
	if name == "" {
		name = "thread"
	}
	c.resource = &resource.Resource{Attributes: attributes(map[string]any{"service.name": name, "service.version": version})}
	return c, nil
}

// Send exports spans, and tries again until it can or ctx ends. Spans that the endpoint
// refuses for good are dropped, with a warning.
func (c *Client) Send(ctx context.Context, list []spans.Span) error {
	if len(list) == 0 {
		return nil
	}
	body, err := c.encode(list)
	if err != nil {
		return err
	}
	failed := false
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		again, err := c.post(ctx, body)
		if err == nil {
			if failed {
				c.warn("traces: %s takes spans again", c.url)
			}
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !again {
			c.warn("traces: %d spans are dropped: %v", len(list), err)
			return nil
		}
		if !failed {
			c.warn("traces: tried again later: %v", err)
		}
		failed = true
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// post makes one request. again says that it may succeed later.
func (c *Client) post(ctx context.Context, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header = c.header.Clone()
	res, err := c.http.Do(req)
	if err != nil {
		return true, err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	switch {
	case res.StatusCode/100 == 2:
		var answer collector.ExportTraceServiceResponse
		if proto.Unmarshal(text, &answer) == nil && answer.GetPartialSuccess().GetRejectedSpans() > 0 {
			c.warn("traces: %s has refused %d spans: %s", c.url, answer.GetPartialSuccess().GetRejectedSpans(), answer.GetPartialSuccess().GetErrorMessage())
		}
		return false, nil
	case res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 502 && res.StatusCode <= 504:
		return true, fmt.Errorf("%s answers %s", c.url, res.Status)
	}
	return false, fmt.Errorf("%s answers %s", c.url, res.Status)
}

// encode returns a request, compressed.
func (c *Client) encode(list []spans.Span) ([]byte, error) {
	scope := &trace.ScopeSpans{Scope: &common.InstrumentationScope{Name: "thread", Version: c.version}}
	for i := range list {
		s, err := span(&list[i])
		if err != nil {
			return nil, err
		}
		scope.Spans = append(scope.Spans, s)
	}
	plain, err := proto.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{Resource: c.resource, ScopeSpans: []*trace.ScopeSpans{scope}}}})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err = z.Write(plain)
	err = errors.Join(err, z.Close())
	return b.Bytes(), err
}

func span(s *spans.Span) (*trace.Span, error) {
	id, err := hex.DecodeString(s.ID)
	of, oerr := hex.DecodeString(s.Trace)
	parent, perr := hex.DecodeString(s.Parent)
	out := &trace.Span{TraceId: of, SpanId: id, ParentSpanId: parent, Name: strings.ToValidUTF8(s.Name, "\uFFFD"), Kind: trace.Span_SpanKind(s.Kind), Flags: 1,
		StartTimeUnixNano: uint64(max(0, s.Start.UnixNano())), EndTimeUnixNano: uint64(max(0, s.End.UnixNano())), Attributes: attributes(s.Attributes)}
	if s.Failed {
		out.Status = &trace.Status{Code: trace.Status_STATUS_CODE_ERROR, Message: strings.ToValidUTF8(s.Error, "\uFFFD")}
	}
	return out, errors.Join(err, oerr, perr)
}

func attributes(m map[string]any) (list []*common.KeyValue) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if v := value(m[name]); v != nil {
			list = append(list, &common.KeyValue{Key: name, Value: v})
		}
	}
	return list
}

// value returns an attribute; nil for one that is null. Numbers and lists may have passed
// through JSON.
func value(v any) *common.AnyValue {
	switch v := v.(type) {
	case string:
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: strings.ToValidUTF8(v, "\uFFFD")}}
	case int64:
		return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: v}}
	case float64:
		return &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: v}}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return value(n)
		}
		f, _ := v.Float64()
		return value(f)
	case []string:
		list := &common.ArrayValue{}
		for _, s := range v {
			list.Values = append(list.Values, value(s))
		}
		return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: list}}
	case []any:
		list := &common.ArrayValue{}
		for _, one := range v {
			list.Values = append(list.Values, value(one))
		}
		return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: list}}
	}
	return nil
}
