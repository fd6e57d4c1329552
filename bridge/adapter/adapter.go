// Package adapter is the list of the brokers that thread-bridge was built with, and
// what each of them needs to be told.
//
// An adapter is a package that registers itself: func init() { adapter.Register(…) }.
// It is linked by a file of cmd/thread-bridge with the build tag of its name.
package adapter

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/bridge/trigger"
)

// Spec is one adapter.
type Spec struct {
	Type    string // as in adapter.type: "kafka"
	Summary string // one line for "trigger adapters"
	Keys    []Key  // of adapter.connection
	Caps    trigger.Caps
	OutCaps trigger.Caps
	// Source and Sink make an adapter without touching the network. Nil: not built.
	Source func(*Settings) (trigger.Source, error)
	Sink   func(*Settings) (trigger.Sink, error)
	// Check returns what is wrong with a connection beyond the keys one by one: the
	// key, and what. May be nil.
	Check func(*Settings) []Fault
	// CheckQueue returns what is wrong with a queue_name to read from (in) or to
	// publish to, "" for nothing. May be nil.
	CheckQueue func(queue string, in bool) string
}

// Fault is something wrong with the value of a key of connection.
type Fault struct{ Key, What string }

// Kind is what the value of a key is.
type Kind int

const (
	Text     Kind = iota
	Number        // whole, not negative
	Bool          // true or false
	Duration      // 30s, 5m; a bare number is seconds
	List          // comma-separated, or a YAML list
	Secret        // text that is never shown
	File          // a path to a file that can be read
)

// Key is one key of adapter.connection.
type Key struct {
	Name     string
	Kind     Kind
	Required bool
	Default  string
	OneOf    []string // the permitted values, nil: any
	Help     string   // one line
}

// Settings is what an adapter is told: checked against its keys.
type Settings struct {
	Name        string // of the trigger or publisher, unique on this host
	Queue       string // queue_name: topic, queue, stream or filter
	Group       string // consumer_group
	DLQ         string // dlq_name, "" for the adapter's default
	Concurrency int    // at least 1
	MaxBatch    int    // how many messages Consume will be asked for at most
	Handled     bool   // messages are held until a consumer is through with them
	RequireTLS  bool   // refuse to connect without TLS
	Connection  map[string]string
	Keys        []Key
	Instance    string // names this host and thread to the broker; "" for none
	Log         *slog.Logger
}

// Text returns the value of a key, its default when it was not given.
func (s *Settings) Text(key string) string {
	if v, ok := s.Connection[key]; ok {
		return v
	}
	if i := slices.IndexFunc(s.Keys, func(k Key) bool { return k.Name == key }); i >= 0 {
		return s.Keys[i].Default
	}
	return ""
}

// Int returns the value of a Number, 0 without one.
func (s *Settings) Int(key string) int {
	n, _ := strconv.Atoi(s.Text(key))
	return n
}

// Bool returns the value of a Bool, false without one.
func (s *Settings) Bool(key string) bool { b, _ := strconv.ParseBool(s.Text(key)); return b }

// Duration returns the value of a Duration, 0 without one.
func (s *Settings) Duration(key string) time.Duration {
	d, _ := parseDuration(s.Text(key))
	return d
}

// List returns the elements of a List without empty ones.
func (s *Settings) List(key string) (list []string) {
	for v := range strings.SplitSeq(s.Text(key), ",") {
		if v = strings.TrimSpace(v); v != "" {
			list = append(list, v)
		}
	}
	return list
}

func parseDuration(s string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return time.Duration(n * float64(time.Second)), nil
	}
	return time.ParseDuration(s)
}

// CheckValue returns what is wrong with a value of the key, "" for nothing.
func (k *Key) CheckValue(v string) string {
	switch k.Kind {
	case Number:
		if n, err := strconv.Atoi(v); err != nil || n < 0 {
			return fmt.Sprintf("%s must be a whole number, got %q", k.Name, v)
		}
	case Bool:
		if _, err := strconv.ParseBool(v); err != nil {
			return fmt.Sprintf("%s must be true or false, got %q", k.Name, v)
		}
	case Duration:
		if d, err := parseDuration(v); err != nil || d < 0 {
			return fmt.Sprintf("%s must be a duration such as 30s, got %q", k.Name, v)
		}
	}
	if k.OneOf != nil && !slices.Contains(k.OneOf, v) {
		return fmt.Sprintf("%s must be one of [%s], got %q", k.Name, strings.Join(k.OneOf, ", "), v)
	}
	if k.Required && v == "" {
		return k.Name + " is required"
	}
	return ""
}

var specs = map[string]*Spec{}

// Register adds an adapter, for init functions.
func Register(s Spec) {
	if specs[s.Type] != nil {
		panic("adapter " + s.Type + " is registered twice")
	}
	specs[s.Type] = &s
}

// Known are all adapters there are, built in or not, and whether the edge build has
// them. Mock is the trigger package's own.
var Known = []struct {
	Type string
	Edge bool
}{{"jetstream", true}, {"kafka", false}, {"mock", true}, {"mqtt", true}, {"rabbitmq", false}, {"redis", true}, {"sqs", false}}

// Find returns the adapter of that type. The error lists those that there are, or
// says how to build one that is not in this build.
func Find(kind string) (*Spec, error) {
	if s := specs[kind]; s != nil {
		return s, nil
	}
	var names []string
	for _, k := range Known {
		if k.Type == kind {
			return nil, &NotInBuildError{Type: kind}
		}
		names = append(names, k.Type)
	}
	return nil, fmt.Errorf("adapter type %q is not known: supported are %s", kind, strings.Join(names, ", "))
}

// NotInBuildError says that an adapter exists, but not in this program.
type NotInBuildError struct{ Type string }

func (e *NotInBuildError) Error() string {
	return fmt.Sprintf("adapter %s is not in this build", e.Type)
}

// Remedy says what helps.
func (e *NotInBuildError) Remedy() string {
	return fmt.Sprintf("install thread-bridge, which has all adapters, or build it with -tags %s", e.Type)
}

// All returns the adapters of this build by name.
func All() (list []*Spec) {
	for _, k := range Known {
		if s := specs[k.Type]; s != nil {
			list = append(list, s)
		}
	}
	return list
}
