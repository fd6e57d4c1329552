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

// TestWhyNoTables: a schema that the role may not use, and one of another process, are told
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

// TestTenants: a role for which a schema was made uses the threads in it, all of them, and no
// statement of it reads or writes the schema of another role.
func TestTenants(t *testing.T) {
	ctx := context.Background()
	var tenants [2]*Address
	for i := range tenants {
		in := newSchema(t)
		admin, err := connect(ctx, in.config)
		if err != nil {
			t.Fatal(err)
		}
		do := func(statements string) {
			t.Helper()
			if _, err := admin.Exec(ctx, statements).ReadAll(); err != nil {
				t.Fatal(err)
			}
		}
		role := fmt.Sprint(strings.ReplaceAll(in.Schema, "test", "tenant"), i)
		do(fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'only-here'", role))
		t.Cleanup(func() { do("DROP OWNED BY " + role + "; DROP ROLE " + role); hangUp(admin) })
		do("BEGIN;" + SchemaFor(in.Schema, role) + "COMMIT")
		tenants[i] = in
		in.config = in.config.Copy()
		in.config.User, in.config.Password = role, "only-here"
	}
	for i, own := range tenants {
		other := tenants[1-i]
		first, second := newThread(t, own), newThread(t, own)
		s := opened(t, first, plain{})
		if _, err := s.Push(ctx, drafts); err != nil || count(t, s) != 1 {
			t.Errorf("its own thread: %v", err)
		}
		if err := s.TakeTurn(ctx, "c", Lease); err != nil {
			t.Errorf("its own turn: %v", err)
		}
		if n := count(t, opened(t, second, plain{})); n != 0 {
			t.Errorf("%d events in its second thread", n)
		}
		foreign := *other
		foreign.Thread, foreign.config = first.Thread, own.config
		s = opened(t, &foreign, plain{})
		if _, err := s.Push(ctx, drafts); !errors.Is(err, ErrNoUse) {
			t.Errorf("a push into the other's schema: %v", err)
		}
		if err := s.View(ctx, func(store.Tx) error { return nil }); !errors.Is(err, ErrNoUse) {
			t.Errorf("a look into the other's schema: %v", err)
		}
		if err := Init(ctx, &foreign); !errors.Is(err, ErrNoUse) {
			t.Errorf("init in the other's schema: %v", err)
		}
		c, err := connect(ctx, own.config)
		if err != nil {
			t.Fatal(err)
		}
		defer hangUp(c)
		for _, table := range []string{"format", "threads", "events", "series", "records", "sequences", "turns", "commits"} {
			name := quoted(other.Schema) + "." + table
			for _, statement := range []string{"SELECT 1 FROM " + name, "DELETE FROM " + name, "COPY " + name + " TO STDOUT", "TRUNCATE " + name} {
				if _, err := c.Exec(ctx, statement).ReadAll(); codeOf(err) != "42501" { // insufficient_privilege
					t.Errorf("%s: %v", statement, err)
				}
			}
		}
	}
}

// TestSchemaIsASCII: a database may have any encoding, and some take nothing else, as EUC_JP.
func TestSchemaIsASCII(t *testing.T) {
	if i := strings.IndexFunc(Schema, func(r rune) bool { return r > unicode.MaxASCII }); i >= 0 {
		t.Errorf("schema.sql: %.20q", Schema[i:])
	}
}
