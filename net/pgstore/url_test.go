package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url            string
		err            error
		thread, schema string
	}{
		{"postgres://h/db?thread=inbox", nil, "inbox", "thread"},
		{"postgresql://u@h:1/db?schema=a%20b&thread=x%2Fy&sslmode=disable", nil, "x/y", "a b"},
		{"postgres://h/db?thread=x&durability=any", nil, "x", "thread"},
		{"postgres://h/db?thread=x&durability=some", ErrURL, "", ""},
		{"postgres://h/db?thread=x&durability=2", nil, "x", "thread"},
		{"postgres://h/db?thread=x&durability=0", ErrURL, "", ""},
		{"postgres://h/db", ErrURL, "", ""},
		{"postgres://h/db?thread=", ErrURL, "", ""},
		{"postgres://h/db?thread=a%00b", ErrURL, "", ""},
		{"postgres://h/db?thread=" + strings.Repeat("x", 201), ErrURL, "", ""},
		{"postgres://h/db?thread=%ff", ErrURL, "", ""},
		{"postgres://h/db?thread=x&schema=" + strings.Repeat("x", 63), nil, "x", strings.Repeat("x", 63)},
		{"postgres://h/db?thread=x&schema=" + strings.Repeat("x", 64), ErrURL, "", ""},
		{"postgres://h:port/db?thread=x", ErrURL, "", ""},
		{"postgres://h/db?thread=x&sslmode=nonsense", ErrURL, "", ""},
		{"mysql://h/db?thread=x", ErrURL, "", ""},
		{"postgres://u:s3cret@h/db?thread=x", ErrPassword, "", ""},
		{"postgres://u:@h/db?thread=x", ErrPassword, "", ""},
		{"postgres://h/db?thread=x&password=s3cret", ErrPassword, "", ""},
		{"postgres://h/db?thread=x&sslpassword=s3cret", ErrPassword, "", ""},
		{"postgres://u:s3cret%zz@h/db?thread=x", ErrURL, "", ""},
	} {
		a, err := ParseURL(c.url)
		if !errors.Is(err, c.err) || c.err == nil && err != nil {
			t.Errorf("%s: %v", c.url, err)
		} else if err == nil && (a.Thread != c.thread || a.Schema != c.schema) {
			t.Errorf("%s: %q, %q", c.url, a.Thread, a.Schema)
		} else if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error has the password: %v", err)
		}
	}
}

// TestSecrets: no form of a password in a URL gets into an error, whether the URL is refused
// or what it names is tried.
func TestSecrets(t *testing.T) {
	t.Setenv("PGCONNECT_TIMEOUT", "1")
	for _, address := range []string{
		"postgres://u:s3cret@127.0.0.1:1/db?thread=x", "postgres://u:%733cret@127.0.0.1:1/db?thread=x", "postgres://:s3cret@127.0.0.1:1/db?thread=x",
		"postgres://u%3As3cret@127.0.0.1:1/db?thread=x", "postgres://u%3as3cret@127.0.0.1:1/db?thread=x",
		"postgres://127.0.0.1:1/db?thread=x&user=u:s3cret", "postgres://127.0.0.1:1/db?thread=x&user=u%3As3cret",
		"postgres://127.0.0.1:1/db?thread=x&PassWord=s3cret", "postgres://127.0.0.1:1/db?thread=x&passw%6Frd=s3cret", "postgres://127.0.0.1:1/db?thread=x&pass=s3cret",
		"postgres://127.0.0.1:1/db?thread=x&pwd=s3cret", "postgres://127.0.0.1:1/db?thread=x&sslpassword=s3cret", "postgres://127.0.0.1:1/db?thread=x&PGPASSWORD=s3cret",
		"postgres://127.0.0.1:1/db?thread=x;password=s3cret", "postgres://127.0.0.1:1/db?thread=x#password=s3cret", "postgres://127.0.0.1:1/db#s3cret?thread=x",
		"postgres://127.0.0.1:1/db?thread=x&options=-c%20password%3Ds3cret", "postgres://127.0.0.1:1/db?thread=x&application_name=password%3Ds3cret",
		"postgres://127.0.0.1:1/db%3Fpassword=s3cret?thread=x", "postgres:///db?thread=x&host=u:s3cret@127.0.0.1", "postgres:///u:s3cret@127.0.0.1/db?thread=x",
		"postgres://127.0.0.1:1,u:s3cret@127.0.0.1:2/db?thread=x", "postgres://u:s3cret@127.0.0.1:1,v:s3cret@127.0.0.1:2/db?thread=x",
		"postgres://127.0.0.1:s3cret/db?thread=x", "postgres://127.0.0.1:1,127.0.0.1:s3cret/db?thread=x", "postgres:u:s3cret@127.0.0.1:1/db?thread=x", "postgres:/u:s3cret@127.0.0.1:1/db?thread=x",
		"postgres://u:s3 cret@127.0.0.1/db?thread=x", "postgres://u:s3cret#x@127.0.0.1/db?thread=x", "postgres://u:s3cret?x@127.0.0.1/db?thread=x", "postgres://u:s3cret%zz@127.0.0.1/db?thread=x",
		"host=127.0.0.1 user=u password=s3cret dbname=db", "host=127.0.0.1 password='s3cret' dbname=db thread=x",
		"postgres://127.0.0.1:1/db?thread=x&sslmode=s3cret&password=s3cret",
	} {
		a, err := ParseURL(address)
		if err == nil {
			t.Errorf("%s is not refused", address)
			err = Init(context.Background(), a)
		}
		if err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "s3 cret") {
			t.Errorf("%s: %v", address, err)
		}
		if c, err := ParseDatabase(address); err == nil || strings.Contains(err.Error(), "s3") || c != nil {
			t.Errorf("%s as a database: %v", address, err)
		}
	}
	// Errors of pgconn about a URL have the rest of it.
	if _, err := ParseURL("postgres://u@h/db?thread=x&sslmode=nonsense"); !errors.Is(err, ErrURL) || strings.Contains(err.Error(), "//") || !strings.Contains(err.Error(), "sslmode") {
		t.Error(err)
	}
	// What the environment has is printed in errors as well.
	for variable, value := range map[string]string{
		"PGUSER": "u:s3cret", "PGHOST": "u:s3cret@127.0.0.1", "PGDATABASE": "postgres://u:s3cret@127.0.0.1:1/db",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, value)
			a, err := ParseURL("postgres://?thread=x")
			if err == nil {
				err = Init(context.Background(), a)
				t.Error("it is not refused")
			}
			if err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Error(err)
			}
		})
	}
	// The password that PostgreSQL's programs know is used and not printed.
	t.Setenv("PGPASSWORD", "s3cret")
	a, err := ParseURL("postgres://u@127.0.0.1:1/db?thread=x")
	if err != nil || a.config.Password != "s3cret" {
		t.Fatal(err)
	}
	if err := Init(context.Background(), a); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
}

// TestParameters: the parameters of PostgreSQL get there as they are.
func TestParameters(t *testing.T) {
	a, err := ParseURL("postgres://h/a%20db?thread=x&options=-c%20geqo%3Doff&application_name=a%2Bb%26c")
	if err != nil {
		t.Fatal(err)
	}
	if p := a.config.RuntimeParams; p["options"] != "-c geqo=off" || p["application_name"] != "a+b&c" || a.config.Database != "a db" {
		t.Errorf("got %q, %q", p, a.config.Database)
	}
}

// TestPrimary: of several hosts the primary is meant, wherever they are named.
func TestPrimary(t *testing.T) {
	for _, c := range []struct {
		url, hosts string
		primary    bool
	}{
		{"postgres://a/db?thread=x", "", false},
		{"postgres://a,b/db?thread=x", "", true},
		{"postgres://a:1,a:2/db?thread=x&sslmode=disable", "", true},
		{"postgres:///db?thread=x&host=a,b", "", true},
		{"postgres:///db?thread=x", "a", false},
		{"postgres:///db?thread=x", "a,b", true},
		{"postgres://a,b/db?thread=x&target_session_attrs=any", "", false},
	} {
		t.Setenv("PGHOST", c.hosts)
		a, err := ParseURL(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if (a.config.ValidateConnect != nil) != c.primary {
			t.Errorf("%s with PGHOST=%s: the primary is asked for: %v", c.url, c.hosts, !c.primary)
		}
	}
}

// TestDurability: what is said of a server, and what of it is refused.
func TestDurability(t *testing.T) {
	for _, c := range []struct {
		fsync, pages, names, says string
		enough                    int64 // durability=N up to which it is accepted
	}{
		{"on", "on", "", "1 host, fsync", 1},
		{"on", "on", "s1", "2 hosts, fsync", 2},
		{"on", "on", "*", "1 host, fsync, standbys not named", 1},
		{"on", "on", ` "*" `, "1 host, fsync, standbys not named", 1},
		{"on", "on", "FIRST 1 (s1, *)", "1 host, fsync, standbys not named", 1},
		{"on", "on", "ANY 2 ( *,s1 )", "1 host, fsync, standbys not named", 1},
		{"on", "on", `"a*", b`, "2 hosts, fsync", 2},
		{"on", "on", "s1, s2", "2 hosts, fsync", 2},
		{"on", "on", "FIRST 2 (s1, s2, s3)", "3 hosts, fsync", 3},
		{"on", "on", "any 3 (a, b, c, d)", "4 hosts, fsync", 4},
		{"on", "on", "2(s1,s2)", "3 hosts, fsync", 3},
		{"off", "on", "s1", "2 hosts, no fsync", 0},
		{"on", "off", "", "1 host, fsync, torn pages", 0},
		{"off", "off", "", "1 host, no fsync", 0},
	} {
		d := durabilityOf([][]byte{[]byte(c.fsync), []byte(c.pages), []byte(c.names)})
		if d.String() != c.says {
			t.Errorf("%+v: %s", c, d)
		}
		for n, where := range []string{"", "&durability=2", "&durability=3", "&durability=4", "&durability=5"} {
			a, err := ParseURL("postgres://h/db?thread=x" + where)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.checkDurable(d); errors.Is(err, ErrWeak) == (int64(n) < c.enough) {
				t.Errorf("%+v with %q: %v", c, where, err)
			}
		}
		a, err := ParseURL("postgres://h/db?thread=x&durability=any")
		if err != nil || a.checkDurable(d) != nil {
			t.Errorf("%+v is refused, although the URL allows it", c)
		}
	}
}
