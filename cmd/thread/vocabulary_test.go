package main

import (
	"slices"
	"strings"
	"testing"
)

// vocabulary is what stands for the value of a flag in help, manual and completion: one
// word for one idea, and the flags that have it. A flag that is new belongs to one of
// these, or needs a separate word.
var vocabulary = map[string]string{
	"ADDRESS":          "listen",                                                                                                                                                                   // HOST:PORT
	"AGENT":            "agent to",                                                                                                                                                                 // the name of an agent
	"AGENT,...":        "agent",                                                                                                                                                                    // several of them
	"D..D":             "backoff",                                                                                                                                                                  // two times
	"GROUP":            "after-group group",                                                                                                                                                        // of runs
	"RUN,...":          "after",                                                                                                                                                                    // several of them
	"WHAT":             "by for if-failed per",                                                                                                                                                     // one of a list
	"CMD":              "handler work",                                                                                                                                                             // a command of a shell
	"CODE":             "error-code",                                                                                                                                                               //
	"COLUMNS":          "by",                                                                                                                                                                       // source, type, subtype
	"CONSUMER":         "consumer",                                                                                                                                                                 // the name of a consumer
	"DELIVERY":         "delivery",                                                                                                                                                                 // the number of a delivery of thread next
	"DIR":              "root root-path thread",                                                                                                                                                    // a directory that is there
	"DURATION":         "backoff dedupe-window delay drain events every extend failed flush interval lease max-age max-backoff ok timeout took warn-after",                                         // 90s, 7d
	"EVENT":            "after event-id last-event-id reply-to",                                                                                                                                    // the id of an event
	"FIELD":            "key",                                                                                                                                                                      // where in an event its key stands
	"FILE":             "config content-file input input-file log message output patch prices request response rules tls-cert tls-key to token-file",                                               // - is stdin, or stdout
	"FILE|URL":         "to",                                                                                                                                                                       // one of the two
	"FORMAT":           "format log-format",                                                                                                                                                        //
	"GLOB":             "consumers source subtype threads type",                                                                                                                                    // a pattern
	"ID":               "after event-id id request-id traceparent",                                                                                                                                 // a text that the caller has chosen
	"JSON":             "auth-context capabilities data input metadata",                                                                                                                            //
	"KEY":              "key unique",                                                                                                                                                               // the value of that field
	"KIND":             "caller kind source trigger",                                                                                                                                               // one of a list
	"LANE":             "clear lane",                                                                                                                                                               //
	"N":                "active after attempt backoff-factor batch keep keep-last last limit lines max max-attempts max-events max-handlers parallel priority retries rounds runs seq step window", // a number
	"N/DURATION":       "rate",                                                                                                                                                                     //
	"N/s":              "rate",                                                                                                                                                                     //
	"NAME":             "event name source-name",                                                                                                                                                   //
	"NAMES":            "tools",                                                                                                                                                                    // of a list
	"NETWORK":          "trusted-proxy",                                                                                                                                                            // of IP addresses
	"NEWDIR":           "to",                                                                                                                                                                       // a directory that is made
	"PATH":             "base-path path to",                                                                                                                                                        // a file or a directory, or of a URL
	"POSITION":         "from to",                                                                                                                                                                  // beginning, end, an event or a time
	"REF":              "content-ref external-ref initiator ref subject",                                                                                                                           // a name in another system
	"RIGHT":            "right",                                                                                                                                                                    // of a client over HTTP
	"ROLE":             "role",                                                                                                                                                                     //
	"RUN":              "ended parent run",                                                                                                                                                         // the id of a run
	"SESSION":          "session",                                                                                                                                                                  // the id of a session
	"SIZE":             "max-bytes",                                                                                                                                                                // 10MB
	"SOURCE":           "source",                                                                                                                                                                   // of an event
	"SPEC":             "when",                                                                                                                                                                     // of a schedule
	"STATUS":           "status",                                                                                                                                                                   //
	"STEP":             "step",                                                                                                                                                                     // the id of a step
	"STRATEGY":         "strategy",                                                                                                                                                                 //
	"SUBTYPE":          "subtype",                                                                                                                                                                  // of an event
	"TABLE":            "table",                                                                                                                                                                    // of a database
	"NAME=N":           "lane",
	"TEXT":             "ask content dedupe-key error execution-policy failed reason title", // any text
	"TIME":             "at available-at older-than since until",                            // 18:00, 7d, RFC 3339
	"TYPE":             "type",                                                              // of an event, or of what is recorded
	"URL":              "external-url from otlp",                                            // of a database or a page
	"USER":             "user",                                                              //
	"WHERE":            "filter",                                                            // a filter
	"WHO":              "by from to",                                                        // user:ID or agent:ID
	"WORKSPACE":        "workspace",                                                         // the id of a workspace
	"fail|skip":        "on-bad-row",
	"on-success":       "ack",
	"on|off":           "feedback-notifies lines mention-triggers record record-runs self-action",
	"sqlite|jsonl|csv": "format",
}

// TestVocabulary: help uses these words, and the same flag has the same short form and,
// where it is the same thing, the same word in every verb.
func TestVocabulary(t *testing.T) {
	used := map[string][]string{}
	short := map[string]rune{}
	for _, v := range allVerbs() {
		for _, f := range v.Model().Flags {
			if f.Hidden {
				continue
			}
			// --lines says of push what is read, and of tail how many.
			if was, ok := short[f.Name]; ok && was != f.Short && f.Name != "lines" {
				t.Errorf("%s: --%s is -%c here and -%c elsewhere", v.Name, f.Name, f.Short, was)
			}
			if short[f.Name] = f.Short; !f.IsBool() && !slices.Contains(used[f.PlaceHolder], f.Name) {
				used[f.PlaceHolder] = append(used[f.PlaceHolder], f.Name)
			}
		}
	}
	for word, flags := range used {
		slices.Sort(flags)
		if got := strings.Join(flags, " "); got != vocabulary[word] {
			t.Errorf("%s stands for the values of %q, and the vocabulary has %q", word, got, vocabulary[word])
		}
	}
	for word := range vocabulary {
		if used[word] == nil {
			t.Errorf("nothing uses %s", word)
		}
	}
}
