package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"thread/internal/store"
)

// TestWhyNoTables: a schema that the role may not use, and one of somebody else, are told
// from a thread that is not there: thread init would help with neither.
func TestWhyNoTables(t *testing.T) {
	ctx, in := context.Background(), newSchema(t)
	role := strings.ReplaceAll(in.Schema, "test", "role")
	public := *in
	public.Schema = "public"
	stranger := *in
	stranger.config = in.config.Copy()
	stranger.config.User = role
	none := *in
	none.Schema += "none"
	newThread(t, in)
	on(t, in, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'only-here'", role))
	t.Cleanup(func() { on(t, in, "DROP ROLE "+role) })
	stranger.config.Password = "only-here"
	for _, c := range []struct {
		a          *Address
		make, look error
	}{
		{&stranger, ErrNoUse, ErrNoUse},
		{&public, ErrOtherSchema, ErrOtherSchema},
		{&none, nil, store.ErrNotThread},
	} {
		s := opened(t, c.a, plain{})
		if err := s.View(ctx, func(store.Tx) error { return nil }); !errors.Is(err, c.look) {
			t.Errorf("%s: view: %v", c.a.Schema, err)
		}
		if _, err := s.Push(ctx, drafts); !errors.Is(err, c.look) {
			t.Errorf("%s: push: %v", c.a.Schema, err)
		}
		if c.make == nil {
			continue
		}
		if err := Init(ctx, c.a); !errors.Is(err, c.make) {
			t.Errorf("%s: init: %v", c.a.Schema, err)
		}
	}
}

// TestSchemaIsASCII: a database may have any encoding, and some take nothing else, as EUC_JP.
func TestSchemaIsASCII(t *testing.T) {
	if i := strings.IndexFunc(Schema, func(r rune) bool { return r > unicode.MaxASCII }); i >= 0 {
		t.Errorf("schema.sql: %.20q", Schema[i:])
	}
}
