package jsonform

import (
	"strings"

	"thread/internal/dispatch"
)

// Why is where an event is for a consumer.
type Why struct {
	Place string `json:"place"`
	Text  string `json:"text"`
}

// NewWhy returns the JSON of a.
func NewWhy(a *dispatch.Answer) Why {
	return Why{strings.ReplaceAll(string(a.Place), " ", "_"), a.Text}
}
