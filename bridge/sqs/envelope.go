package sqs

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// SQS has 10 attributes for a message, none of them empty, and texts of characters of
// XML only. What does not fit travels in these two attributes.
const (
	headerMore     = "x-more"     // a JSON object of the other headers
	headerEncoding = "x-encoding" // "base64": the body is so
	maxAttributes  = 10
)

// first are the headers that stand as separate attributes before others do.
var first = []string{headerEncoding, trigger.HeaderMessageID, trigger.HeaderEventName, trigger.HeaderDedupKey, trigger.HeaderDLQReason,
	"x-dlq-status", "x-dlq-attempts", "x-tenant-id"}

var attributeName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,255}$`)

// plain reports whether s is a text that SQS takes.
func plain(s string) bool {
	if s == "" || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return true
}

// pack turns a message into what SQS takes.
func pack(body []byte, headers map[string]string) (string, map[string]types.MessageAttributeValue) {
	h := maps.Clone(headers)
	if h == nil {
		h = map[string]string{}
	}
	delete(h, headerMore)
	text := string(body)
	delete(h, headerEncoding)
	if !plain(text) {
		h[headerEncoding] = "base64"
		if text = base64.StdEncoding.EncodeToString(body); text == "" {
			text = "=" // there is no empty body
		}
	}
	names := adapter.Sorted(h)
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	own, more := map[string]types.MessageAttributeValue{}, map[string]string{}
	room := maxAttributes
	for _, name := range names {
		if !fits(name, h[name]) {
			room = maxAttributes - 1
		}
	}
	if len(names) > maxAttributes {
		room = maxAttributes - 1
	}
	for _, name := range names {
		if len(own) < room && fits(name, h[name]) {
			own[name] = text1(h[name])
		} else {
			more[name] = h[name]
		}
	}
	if len(more) > 0 {
		b, _ := json.Marshal(more) // of strings: no error
		own[headerMore] = text1(string(b))
	}
	return text, own
}

func rank(name string) int {
	if i := slices.Index(first, strings.ToLower(name)); i >= 0 {
		return i
	}
	return len(first)
}

func fits(name, value string) bool {
	lower := strings.ToLower(name)
	return plain(value) && attributeName.MatchString(name) && !strings.HasSuffix(name, ".") && !strings.Contains(name, "..") &&
		!strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.")
}

func text1(v string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(v)}
}

// unpack is the opposite of pack. Attributes of bytes are in base64. Of a body that is
// not what it says to be, bad says what is wrong.
func unpack(body string, attributes map[string]types.MessageAttributeValue) (data []byte, headers map[string]string, bad string) {
	data, headers = []byte(body), map[string]string{}
	for name, a := range attributes {
		if a.StringValue != nil {
			headers[name] = *a.StringValue
		} else {
			headers[name] = base64.StdEncoding.EncodeToString(a.BinaryValue)
		}
	}
	if text, ok := headers[headerMore]; ok {
		more := map[string]string{}
		if json.Unmarshal([]byte(text), &more) == nil { // else it is another process's
			delete(headers, headerMore)
			for name, v := range more {
				if _, ok := headers[name]; !ok {
					headers[name] = v
				}
			}
		}
	}
	if headers[headerEncoding] == "base64" {
		delete(headers, headerEncoding)
		if body == "=" {
			return []byte{}, headers, ""
		}
		b, err := base64.StdEncoding.DecodeString(body)
		if err != nil {
			return data, headers, "x-encoding is base64 and the body is not: " + err.Error()
		}
		data = b
	}
	return data, headers, ""
}
