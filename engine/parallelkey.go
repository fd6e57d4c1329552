package engine

import (
	"thread/event"
	"thread/filter"
)

// keyOf tells the key of an event.
type keyOf struct {
	column string
	path   *filter.Path
	fold   func(key string) string // nil: none
}

func newKeyOf(text string) (keyOf, error) {
	k := keyOf{column: text}
	switch text {
	case "", "source", "type", "subtype":
		return k, nil
	}
	var ok bool
	if k.path, ok = filter.CompilePath(text); !ok {
		return k, invalidf("key %q is not source, type, subtype or a JSON path such as $.chat.id", text)
	}
	return k, nil
}

// ValidKey returns [ErrInvalid] for a text that cannot be the Key of a
// [ParallelPolicy].
func ValidKey(text string) error {
	_, err := newKeyOf(text)
	return err
}

// none reports whether events have no key.
func (k *keyOf) none() bool { return k.column == "" }

// inContent reports whether the key of an event is in its content.
func (k *keyOf) inContent() bool { return k.path != nil }

// of is what orders an event.
func (k *keyOf) of(e *event.Event) string {
	if k.fold != nil && !k.none() {
		return k.fold(k.text(e))
	}
	return k.text(e)
}

// text is what the event has.
func (k *keyOf) text(e *event.Event) string {
	switch {
	case k.path != nil:
		return k.path.Text(e.Content)
	case k.column == "source":
		return e.Source
	case k.column == "type":
		return e.Type
	case k.column == "subtype" && e.Subtype != nil:
		return *e.Subtype
	}
	return ""
}
