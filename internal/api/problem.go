package api

import (
	"errors"
	"fmt"
	"net/http"

	"thread/engine"
	"thread/filter"
	"thread/history"
	"thread/internal/dispatch"
)

// Kind is a kind of problem (RFC 9457). Clients decide by its name, which does not change.
type Kind struct {
	Name   string // the end of the type
	Status int
	Title  string
	errs   []error
}

// Type returns the URI of the kind.
func (k Kind) Type() string { return "urn:thread:problem:" + k.Name }

// errNotGiven refuses a delivery that no client was given.
var errNotGiven = errors.New("no client was given that delivery: send the text that next answered, as it is")

// errNotFailed reports a message that cannot be retried.
var errNotFailed = errors.New("it has not failed")

// keyHeader names a request, so that it can be sent again when its answer was lost.
const keyHeader = "Idempotency-Key"

var (
	// errGone reports that the client disconnected, and that the request changed nothing.
	errGone = errors.New("the client disconnected before the answer")
	// errInProgress, errLarge and errCutOff report why a repeated request has no answer.
	errInProgress = errors.New("a request with this " + keyHeader + " is in progress")
	errLarge      = errors.New("this request has succeeded; its answer was too large to be kept")
	errCutOff     = errors.New("the server ended before it answered this request: look at what it has changed, and send what is missing with another " + keyHeader)
)

// kinds are the kinds of problems. The first kind of a status without errors is for
// refusals with this status.
var kinds = []Kind{
	{"invalid", http.StatusBadRequest, "The request is not valid", []error{engine.ErrInvalid}},
	{"filter", http.StatusBadRequest, "The filter is not valid, or fails for an event", []error{filter.ErrRuntime}},
	{"unauthorized", http.StatusUnauthorized, "The token is missing, wrong or expired", nil},
	{"forbidden", http.StatusForbidden, "The client may not do that", nil},
	{"not-found", http.StatusNotFound, "There is no such resource", []error{history.ErrNotFound}},
	{"no-thread", http.StatusNotFound, "The thread does not exist", []error{engine.ErrNotThread}},
	{"no-consumer", http.StatusNotFound, "The consumer does not exist", []error{engine.ErrNoSubscription}},
	{"no-delivery", http.StatusNotFound, "There is no such delivery", []error{errNotGiven}},
	{"no-schedule", http.StatusNotFound, "The schedule does not exist", []error{engine.ErrNoSchedule, engine.ErrNoDelayed}},
	{"method", http.StatusMethodNotAllowed, "The path does not take this method", nil},
	{"slow", http.StatusRequestTimeout, "The request comes too slowly", nil},
	{"exists", http.StatusConflict, "There is one of this name", []error{engine.ErrScheduleExists, engine.ErrSubscriptionExists, history.ErrExists}},
	{"stale", http.StatusConflict, "The delivery is not in flight any more", []error{engine.ErrStale}},
	{"in-flight", http.StatusConflict, "Another delivery of the consumer is in flight", []error{engine.ErrOut, engine.ErrConsumerBusy, dispatch.ErrHandled}},
	{"handler", http.StatusConflict, "The consumer has a handler", []error{engine.ErrNotPull}},
	{"paused", http.StatusConflict, "The consumer is paused", []error{engine.ErrPaused}},
	{"recovered", http.StatusConflict, "Recovery has given the run to another worker", []error{history.ErrRecovered}},
	{"cancelled", http.StatusConflict, "The run is to be cancelled", []error{history.ErrCancelled}},
	{"ended", http.StatusConflict, "The run has ended", []error{history.ErrEnded}},
	{"active", http.StatusConflict, "The session has an active run", []error{history.ErrActive}},
	{"state", http.StatusConflict, "The run is in another state", []error{history.ErrState}},
	{"not-failed", http.StatusConflict, "The message has not failed", []error{errNotFailed}},
	{"key-in-progress", http.StatusConflict, "A request with this " + keyHeader + " is in progress", []error{errInProgress}},
	{"key-unknown", http.StatusConflict, "The answer to this " + keyHeader + " is not known", []error{errLarge, errCutOff}},
	{"too-large", http.StatusRequestEntityTooLarge, "The body is too large", nil},
	{"media-type", http.StatusUnsupportedMediaType, "The type of the body is not taken", nil},
	{"host", http.StatusMisdirectedRequest, "The request names another host", nil},
	{"key-reused", http.StatusUnprocessableEntity, "This " + keyHeader + " was sent with another body", nil},
	{"limit", http.StatusTooManyRequests, "A limit is reached", []error{history.ErrLimit}},
	{"internal", http.StatusInternalServerError, "The server failed", nil},
	{"unknown-outcome", http.StatusInternalServerError, "The change may be stored or not", []error{engine.ErrUnknownOutcome}},
	{"busy", http.StatusServiceUnavailable, "The server is busy", []error{engine.ErrBusy}},
}

// Kinds returns the kinds of problems, in the order of their status.
func Kinds() []Kind { return kinds }

// Error is a refusal: the status, and a reason.
type Error struct {
	Status int
	Reason string
}

func (e *Error) Error() string { return e.Reason }

func badRequest(format string, args ...any) error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// kindOf returns the kind of an error.
func kindOf(err error) Kind {
	status := http.StatusInternalServerError
	var refused *Error
	var bad *filter.Error
	var tooLong *http.MaxBytesError
	var leased *engine.LeasedError
	switch {
	case errors.As(err, &refused):
		status = refused.Status
	case errors.As(err, &tooLong):
		status = http.StatusRequestEntityTooLarge
	case errors.As(err, &bad):
		err = filter.ErrRuntime
	case errors.As(err, &leased):
		err = engine.ErrOut
	}
	for _, k := range kinds {
		for _, one := range k.errs {
			if errors.Is(err, one) {
				return k
			}
		}
	}
	return kindOfStatus(status)
}

func kindOfStatus(status int) Kind {
	for _, k := range kinds {
		if k.Status == status {
			return k
		}
	}
	return Kind{"other", status, http.StatusText(status), nil}
}
