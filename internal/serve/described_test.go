//go:build linux

package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"thread/internal/api"
)

// description is openapi.json as a tree.
var description = sync.OnceValue(func() (tree map[string]any) {
	text, err := os.ReadFile("../api/openapi.json")
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		panic(err)
	}
	return tree
})

// at follows members of the tree, and references.
func at(tree any, names ...string) map[string]any {
	node, _ := tree.(map[string]any)
	for _, name := range names {
		node, _ = resolve(node)[name].(map[string]any)
	}
	return resolve(node)
}

func resolve(node map[string]any) map[string]any {
	ref, ok := node["$ref"].(string)
	if !ok {
		return node
	}
	return at(description(), strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

// operation returns what is described of a request, nil for nothing.
func operation(method, path string) map[string]any {
	got := strings.Split(path, "/")
	for pattern := range at(description(), "paths") {
		want := strings.Split(pattern, "/")
		if len(got) == len(want) && !slices.ContainsFunc(want, func(s string) bool {
			i := slices.Index(want, s)
			return !strings.HasPrefix(s, "{") && s != got[i]
		}) {
			if op := at(description(), "paths", pattern, strings.ToLower(method)); op != nil {
				return op
			}
		}
	}
	return nil
}

// described reports how an answer differs from its description.
func described(method, path string, status int, typ string, body []byte) error {
	op := operation(method, path)
	if op == nil {
		return fmt.Errorf("not described")
	}
	answer := at(op, "responses", fmt.Sprint(status))
	if answer == nil && status >= 400 {
		answer = at(op, "responses", "default")
	}
	if answer == nil {
		return fmt.Errorf("the status is not described")
	}
	if answer["content"] == nil {
		if len(body) > 0 {
			return fmt.Errorf("it has a body")
		}
		return nil
	}
	typ, _, _ = mime.ParseMediaType(typ)
	schema := at(answer, "content", typ, "schema")
	if schema == nil {
		return fmt.Errorf("type %q is not described", typ)
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	return conforms(schema, value)
}

// conforms checks a value against those words of JSON Schema that the description uses.
func conforms(schema map[string]any, value any) error {
	schema = resolve(schema)
	for word := range schema {
		if !slices.Contains([]string{"type", "properties", "required", "additionalProperties", "items", "minimum", "maximum", "description", "oneOf"}, word) {
			return fmt.Errorf("the word %s is not known", word)
		}
	}
	var types []any
	switch typ := schema["type"].(type) {
	case string:
		types = []any{typ}
	case []any:
		types = typ
	}
	kind := map[bool]string{true: "null"}[value == nil]
	switch v := value.(type) {
	case string:
		kind = "string"
		if list, some := schema["oneOf"].([]any); some && !slices.ContainsFunc(list, func(one any) bool { return at(one)["const"] == v }) {
			return fmt.Errorf("%q is not one of the constants", v)
		}
	case bool:
		kind = "boolean"
	case float64:
		if kind = "number"; v == math.Trunc(v) {
			kind = "integer"
		}
		if least, ok := schema["minimum"].(float64); ok && v < least {
			return fmt.Errorf("%v is below %v", v, least)
		}
		if most, ok := schema["maximum"].(float64); ok && v > most {
			return fmt.Errorf("%v is above %v", v, most)
		}
	case []any:
		kind = "array"
		for i, item := range v {
			if err := conforms(at(schema, "items"), item); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
	case map[string]any:
		kind = "object"
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				return fmt.Errorf("%s is missing", name)
			}
		}
		for name, member := range v {
			known := at(schema, "properties", name)
			if known == nil && schema["additionalProperties"] == false {
				return fmt.Errorf("%s is not described", name)
			}
			if err := conforms(known, member); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if len(types) > 0 && !slices.Contains(types, any(kind)) {
		return fmt.Errorf("%v is not %v", value, types)
	}
	return nil
}

// TestDescribed: the check of answers sees what is wrong.
func TestDescribed(t *testing.T) {
	const path = "/threads/t/consumers/c/next"
	good := `{"delivery":"7","attempt":null,"lease_until":"x","events":[{"id":1,"created_at":"","source":"","type":"","subtype":null,"content":""}]}`
	if err := described("POST", path, 200, "application/json", []byte(good)); err != nil {
		t.Error(err)
	}
	for _, change := range [][2]string{{`"attempt":null,`, ``}, {`"7"`, `7`}, {`"id":1`, `"id":0`}, {`"subtype":null,`, ``}, {`"source"`, `"origin"`}, {`"delivery"`, `"more":1,"delivery"`}, {`[`, `[7,`}} {
		if bad := strings.Replace(good, change[0], change[1], 1); described("POST", path, 200, "application/json", []byte(bad)) == nil {
			t.Errorf("nothing is wrong with %s", bad)
		}
	}
	for _, err := range []error{described("POST", path, 201, "application/json", []byte(good)), described("POST", path, 204, "", []byte(good)),
		described("POST", path, 200, "text/plain", []byte(good)), described("PUT", path, 200, "application/json", []byte(good)), described("POST", path+"x", 200, "application/json", []byte(good))} {
		if err == nil {
			t.Error("nothing is wrong")
		}
	}
}

// TestDescription: what is described is answered, and what is answered is described, with
// the rights that it says and the members that it names.
func TestDescription(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	if status, a := b.exchange("GET", "/openapi.json", "", "", "Authorization", ""); status != 200 || a["openapi"] != "3.1.0" {
		t.Errorf("%d %v", status, a)
	}
	var listed []string
	for pattern, methods := range at(description(), "paths") {
		for method := range methods.(map[string]any) {
			if method == "parameters" {
				continue
			}
			method = strings.ToUpper(method)
			listed = append(listed, method+" "+pattern)
			path := strings.NewReplacer("{name}", "thread", "{consumer}", "nobody", "{id}", "9").Replace(pattern)
			q := b.request(path)
			q.Method = method
			need, ok := api.Needs(q, false)
			if !ok {
				t.Errorf("%s %s is not for the API", method, pattern)
			}
			if text := fmt.Sprint(operation(method, path)["description"]); need != api.None && method == "POST" && !strings.Contains(text, "Needs the right "+need.String()+".") {
				t.Errorf("%s %s needs %s, and says %q", method, pattern, need, text)
			}
			for typ := range at(operation(method, path), "requestBody", "content") {
				schema := at(operation(method, path), "requestBody", "content", typ, "schema")
				for name := range at(schema, "properties") {
					if typ != "application/json" || strings.HasSuffix(path, "/events") {
						continue
					}
					// A member that is not known is refused by its name; one that is, for its value.
					_, a := b.exchange(method, path, typ, fmt.Sprintf(`{%q:{}}`, name))
					if strings.Contains(fmt.Sprint(a["detail"]), "is not known") {
						t.Errorf("%s %s takes no %s", method, pattern, name)
					}
				}
			}
			r, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode == 405 || r.StatusCode == 404 && !strings.Contains(path, "nobody") && !strings.Contains(path, "{") && !strings.Contains(path, "/events/9") {
				t.Errorf("%s %s: %d", method, pattern, r.StatusCode)
			}
		}
	}
	slices.Sort(listed)
	if got := api.Routes(); !slices.Equal(got, listed) {
		t.Errorf("answered  %q\ndescribed %q", got, listed)
	}
}
