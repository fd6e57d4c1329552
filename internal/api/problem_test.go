package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"thread/engine"
	"thread/filter"
	"thread/history"
)

// TestKinds: the description lists the kinds of problems with their titles, each kind has
// its own name, and each error leads to its kind, also where it is wrapped.
func TestKinds(t *testing.T) {
	var tree struct {
		Components struct {
			Schemas struct {
				Refusal struct {
					Properties struct {
						Type struct {
							OneOf []struct{ Const, Title string }
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(Description(), &tree); err != nil {
		t.Fatal(err)
	}
	var described, known []string
	for _, one := range tree.Components.Schemas.Refusal.Properties.Type.OneOf {
		described = append(described, one.Const+" "+one.Title)
	}
	names := map[string]bool{}
	for i, k := range Kinds() {
		known = append(known, k.Type()+" "+k.Title)
		if names[k.Name] || i > 0 && k.Status < Kinds()[i-1].Status {
			t.Errorf("%s is there twice, or not in order", k.Name)
		}
		names[k.Name] = true
		for _, err := range k.errs {
			if got := kindOf(fmt.Errorf("x: %w", err)); got.Name != k.Name {
				t.Errorf("%v is %s, want %s", err, got.Name, k.Name)
			}
		}
	}
	if !slices.Equal(described, known) {
		t.Errorf("described %q\nknown     %q", described, known)
	}
	for _, tt := range []struct {
		err  error
		name string
	}{
		{&Error{http.StatusTooManyRequests, "x"}, "limit"}, {&Error{http.StatusNotFound, "x"}, "not-found"}, {&Error{599, "x"}, "other"},
		{&filter.Error{}, "filter"}, {&http.MaxBytesError{}, "too-large"}, {&engine.LeasedError{}, "in-flight"},
		{errors.New("x"), "internal"}, {history.ErrNoneReady, "internal"},
	} {
		if got := kindOf(tt.err); got.Name != tt.name {
			t.Errorf("%v is %s, want %s", tt.err, got.Name, tt.name)
		}
	}
}

// TestRefuse: an answer has the kind, and keeps the time that was found for its client.
func TestRefuse(t *testing.T) {
	for _, tt := range []struct{ before, after string }{{"", "1"}, {"32", "32"}} {
		rw := httptest.NewRecorder()
		if tt.before != "" {
			rw.Header().Set("Retry-After", tt.before)
		}
		Refuse(rw, fmt.Errorf("%w: x", history.ErrLimit))
		var a map[string]any
		if err := json.Unmarshal(rw.Body.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		if rw.Code != 429 || a["type"] != "urn:thread:problem:limit" || a["status"] != 429.0 || a["title"] == "" || a["detail"] == "" || rw.Header().Get("Retry-After") != tt.after {
			t.Errorf("%d %v %v", rw.Code, a, rw.Header())
		}
	}
}
