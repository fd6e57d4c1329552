// Package jsonform has the shapes of docs/reference/json.md that both the verbs and the pages of
// thread serve print. Keys keep their name, type, meaning and order.
package jsonform
