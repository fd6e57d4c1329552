package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Reference is the description of the API as its page shows it.
type Reference struct {
	Requests []Request `json:"requests"`
	Shapes   []Shape   `json:"shapes"`
	Problems []Member  `json:"problems"`
}

// Request is a method of a path.
type Request struct {
	Method  string   `json:"method"`
	Path    string   `json:"path"`
	Summary string   `json:"summary"`
	Text    string   `json:"text"`
	Members []Member `json:"parameters"`
	Body    []string `json:"body"`    // the shapes that it takes
	Answers []string `json:"answers"` // the shapes that it returns
}

// Shape is an object of JSON.
type Shape struct {
	Name    string   `json:"name"`
	Members []Member `json:"members"`
}

// Member is a member of a shape, a parameter of a request or a type of problem.
type Member struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Text     string `json:"text"`
	Required bool   `json:"required"`
}

// described are the parts of a description in OpenAPI that the page shows.
type described struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Parameters map[string]parameter
		Schemas    map[string]schema
	}
}

type operation struct {
	Summary, Description string
	Parameters           []parameter
	RequestBody          struct{ Content map[string]media }
	Responses            map[string]struct{ Content map[string]media }
}

type media struct{ Schema schema }

type parameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                schema
}

type schema struct {
	Ref         string `json:"$ref"`
	Type        any
	Description string
	Properties  map[string]schema
	Required    []string
	Items       *schema
	OneOf       []struct{ Const, Title string }
}

// kind is the type of a value in words.
func (s schema) kind() string {
	switch {
	case s.Ref != "":
		return lastOf(s.Ref)
	case s.Items != nil:
		return "list of " + s.Items.kind()
	}
	if list, ok := s.Type.([]any); ok {
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", " or ")
	}
	if s.Type == nil {
		return "any"
	}
	return fmt.Sprint(s.Type)
}

func lastOf(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// readReference reads a description in OpenAPI, nil for none.
func readReference(text []byte) (*Reference, error) {
	var d described
	if text == nil {
		return new(Reference), nil
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	r := new(Reference)
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		var common []parameter
		if raw := d.Paths[path]["parameters"]; raw != nil {
			if err := json.Unmarshal(raw, &common); err != nil {
				return nil, err
			}
		}
		for _, method := range []string{"get", "post", "put", "delete"} {
			raw := d.Paths[path][method]
			if raw == nil {
				continue
			}
			var o operation
			if err := json.Unmarshal(raw, &o); err != nil {
				return nil, err
			}
			one := Request{Method: strings.ToUpper(method), Path: path, Summary: o.Summary, Text: o.Description, Body: shapes(o.RequestBody.Content)}
			for _, p := range slices.Concat(common, o.Parameters) {
				if p.Ref != "" {
					p = d.Components.Parameters[lastOf(p.Ref)]
				}
				one.Members = append(one.Members, Member{p.Name, p.In, p.Description, p.Required})
			}
			for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
				one.Answers = append(one.Answers, shapes(o.Responses[status].Content)...)
			}
			r.Requests = append(r.Requests, one)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		one := Shape{Name: name}
		for _, member := range slices.Sorted(maps.Keys(s.Properties)) {
			of := s.Properties[member]
			one.Members = append(one.Members, Member{member, of.kind(), of.Description, slices.Contains(s.Required, member)})
			for _, kind := range of.OneOf {
				r.Problems = append(r.Problems, Member{Name: kind.Const, Text: kind.Title})
			}
		}
		r.Shapes = append(r.Shapes, one)
	}
	return r, nil
}

// shapes returns the names of the shapes that a content has.
func shapes(content map[string]media) (names []string) {
	for _, typ := range slices.Sorted(maps.Keys(content)) {
		if ref := content[typ].Schema.Ref; ref != "" {
			names = append(names, lastOf(ref))
		}
	}
	return names
}

// api is the page of the API.
func (p *Page) api(*http.Request) (any, error) { return p.reference, nil }
