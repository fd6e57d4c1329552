package pgstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"thread/event"
	"thread/internal/store"
)

// otherKey is a connection through a pooler, which tells another number.
type otherKey struct {
	net.Conn
	told bool
}

func (c *otherKey) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if i := bytes.Index(b[:n], []byte{'K', 0, 0, 0, 12}); i >= 0 && !c.told && i+9 <= n {
		c.told = true
		binary.BigEndian.PutUint32(b[i+5:], binary.BigEndian.Uint32(b[i+5:])+1)
	}
	return n, err
}

// raw runs statements on the connection that the store uses next.
func raw(t *testing.T, s *Store, list ...statement) []rowset {
	t.Helper()
	ctx := context.Background()
	c, _, err := s.pool.take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.pool.put(c)
	r, err := pipeline(ctx, c, nil, list...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pushTwice(t *testing.T, s *Store) (statements int64) {
	t.Helper()
	for range 2 {
		if _, err := s.Push(context.Background(), drafts); err != nil {
			t.Fatal(err)
		}
	}
	return number(raw(t, s, sql("SELECT count(*) FROM pg_prepared_statements"))[0].rows[0][0])
}

// TestPrepared: a connection's own session keeps statements. Where it does not have them any
// more, or where it has them already, what was asked is done all the same, and without names.
func TestPrepared(t *testing.T) {
	for name, change := range map[string]func(c *pgconn.PgConn) error{
		"lost": func(c *pgconn.PgConn) error {
			_, err := pipeline(context.Background(), c, nil, sql("DEALLOCATE ALL"))
			return err
		},
		"taken": func(c *pgconn.PgConn) error {
			c.CustomData()[preparedKey] = prepared{}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, newThread(t, newSchema(t)), plain{})
			if n := pushTwice(t, s); n < 5 {
				t.Fatalf("%d statements are prepared", n)
			}
			c, _, err := s.pool.take(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			err = change(c)
			if s.pool.put(c); err != nil {
				t.Fatal(err)
			}
			if pushTwice(t, s); !s.pool.shared.Load() || preparedOn(c) != nil {
				t.Error("names are used again")
			}
			if n := count(t, s); int(n) != 4*len(drafts) {
				t.Errorf("%d events, want %d", n, 4*len(drafts))
			}
		})
	}
}

// TestPreparedPooled: behind a pooler nothing is prepared.
func TestPreparedPooled(t *testing.T) {
	a := *newThread(t, newSchema(t))
	a.config = a.config.Copy()
	dial := a.config.DialFunc
	a.config.TLSConfig, a.config.Fallbacks = nil, nil
	a.config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &otherKey{Conn: c}, err
	}
	if n := pushTwice(t, opened(t, &a, plain{})); n != 0 {
		t.Errorf("%d statements are prepared", n)
	}
}

// TestPreparedPlans: the plans that a session keeps look for rows by an index, though they were
// made for tables with next to nothing in them.
func TestPreparedPlans(t *testing.T) {
	a := newThread(t, newSchema(t))
	s := opened(t, a, plain{})
	ctx := context.Background()
	wanted := store.Wanted{Records: []store.WantedRecord{{Table: "x", Key: []byte("a")}}, From: []store.WantedRecord{{Table: "x"}}}
	for range 8 { // the server plans a statement five times before it may keep a plan
		err := s.run(wanted.With(ctx), true, nil, func(tx *tx) error {
			for _, key := range []string{"a", "b"} {
				_, err := tx.Get("x", []byte(key))
				_ = tx.Put("x", []byte(key), []byte("1"))
				_ = tx.Delete("x", []byte(key+"gone"))
				if err != nil {
					return err
				}
			}
			_ = tx.SetSequence("x", 7)
			return tx.Descend("x", nil, func(_, _ []byte) (bool, error) { return true, nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Push(ctx,
			[]event.Draft{{Source: "s", Type: "t"}}); err != nil {
			t.Fatal(err)
		}
	}
	r := raw(t, s, sql("SELECT name::bytea, statement, array_length(parameter_types, 1)::bigint FROM pg_prepared_statements WHERE statement ~ '^(SELECT|INSERT|DELETE)'"))
	if len(r[0].rows) < 8 {
		t.Fatalf("%d statements are prepared", len(r[0].rows))
	}
	for _, row := range r[0].rows {
		args := strings.TrimSuffix(strings.Repeat("NULL,", int(number(row[2]))), ",")
		if args != "" {
			args = "(" + args + ")"
		}
		plan := raw(t, s, sql(beginWrite), s.settings(true), sql("SELECT set_config('plan_cache_mode', 'force_generic_plan', true)"),
			sql("EXPLAIN EXECUTE "+string(row[0])+args), sql("COMMIT"))[3]
		for _, line := range plan.rows {
			if l := string(line[0]); strings.Contains(l, "Seq Scan") && !strings.Contains(l, "Seq Scan on format") {
				t.Errorf("%s\n%s", row[1], l)
			}
		}
	}
}
