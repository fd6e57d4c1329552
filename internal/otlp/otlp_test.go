package otlp

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"thread/internal/spans"
)

// endpoint answers with the statuses in turn, then with 200, and returns what it took.
func endpoint(t *testing.T, statuses ...int) (url string, got chan *trace.Span) {
	got = make(chan *trace.Span, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(statuses) > 0 {
			w.WriteHeader(statuses[0])
			statuses = statuses[1:]
			return
		}
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(z)
		var q collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &q) != nil || r.URL.Path != "/v1/traces" || r.Header.Get("api-key") != "a b" {
			t.Errorf("the request to %s with %v is wrong: %v", r.URL, r.Header, err)
		}
		for _, of := range q.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				for _, s := range scope.Spans {
					got <- s
				}
			}
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b")
	return s.URL, got
}

func newClient(t *testing.T, url string) (*Client, *[]string) {
	var warned []string
	c, err := New(url, "1.0.0", func(format string, args ...any) { warned = append(warned, fmt.Sprintf(format, args...)) })
	if err != nil {
		t.Fatal(err)
	}
	return c, &warned
}

var some = spans.Span{Context: spans.Context{Trace: "0af7651916cd43dd8448eb211c80319c", ID: "b7ad6b7169203331"}, Parent: "00f067aa0ba902b7", Name: "chat \xff", Kind: spans.Client,
	Start: time.Unix(1, 2), End: time.Unix(3, 4), Failed: true, Error: "exit 3", Attributes: map[string]any{"n": int64(7), "f": 0.5, "s": "x", "l": []string{"a"}}}

// TestLines: a span comes through the lines and the request as it was, after an endpoint that
// was away; half a line is left out.
func TestLines(t *testing.T) {
	url, got := endpoint(t, http.StatusServiceUnavailable)
	c, warned := newClient(t, url)
	line, err := json.Marshal(&some)
	if err != nil {
		t.Fatal(err)
	}
	c.Lines(context.Background(), strings.NewReader(string(line)+"\n"+string(line[:20])))
	close(got)
	s := <-got
	if s == nil || fmt.Sprintf("%x %x %x", s.TraceId, s.SpanId, s.ParentSpanId) != some.Trace+" "+some.ID+" "+some.Parent {
		t.Fatalf("the span is %v", s)
	}
	if s.Name != "chat \uFFFD" || s.Kind != trace.Span_SPAN_KIND_CLIENT || s.StartTimeUnixNano != 1_000_000_002 || s.EndTimeUnixNano != 3_000_000_004 ||
		s.Status.Code != trace.Status_STATUS_CODE_ERROR || s.Status.Message != "exit 3" {
		t.Errorf("the span is %v", s)
	}
	for i, value := range []string{"double_value:0.5", `array_value:{values:{string_value:"a"}}`, "int_value:7", `string_value:"x"`} {
		if text := strings.ReplaceAll(s.Attributes[i].Value.String(), " ", ""); text != value {
			t.Errorf("attribute %s is %s, want %s", s.Attributes[i].Key, text, value)
		}
	}
	if _, more := <-got; more || len(*warned) != 2 {
		t.Errorf("more spans came, or the warnings are %q", *warned)
	}
}

// TestRefusedSpans: what an endpoint refuses for good is dropped, and holds up nothing.
func TestRefusedSpans(t *testing.T) {
	url, got := endpoint(t, http.StatusBadRequest)
	c, warned := newClient(t, url)
	for range 2 {
		if err := c.Send(t.Context(), []spans.Span{some}); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != 1 || len(*warned) != 1 || !strings.Contains((*warned)[0], "1 spans are dropped") {
		t.Errorf("%d spans came, and the warnings are %q", len(got), *warned)
	}
}

func TestEndpoint(t *testing.T) {
	for _, text := range []string{"", "localhost:4318", "grpc://localhost", "http://", "http://u:p@host", "http://host/?a=b"} {
		if _, err := New(text, "", nil); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
