package pgstore

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

// Address says where a thread is.
type Address struct {
	URL    string // as it was given, which has no password
	Thread string
	Schema string
	weak   bool  // a server that may lose what it has confirmed is accepted
	hosts  int64 // that must have what is confirmed, 1 where the URL does not say so
	config *pgconn.Config
}

// DefaultSchema is the schema of a URL that names none.
const DefaultSchema = "thread"

const maxNameBytes = 200

// connectTimeout is how long a host may take to answer, where neither the URL nor the
// environment says so. The known clients of thread give up after 5 s.
const connectTimeout = 4 * time.Second

// ErrURL says that a URL names no thread, ErrPassword that it has a password.
var (
	ErrURL      = errors.New("not the URL of a thread in PostgreSQL")
	ErrPassword = errors.New("the URL has a password in it, or what looks like one, where other users of the host see it")
)

// ErrWeak says that the server does not keep what it confirms as the URL asks for.
var ErrWeak = errors.New("the server may lose what it has confirmed")

// mostHosts bounds what a URL can ask for.
const mostHosts = 1000

// ParseDatabase reads postgres://[user@]host[:port]/database, as ParseURL does, of a
// database in which there is no thread.
func ParseDatabase(s string) (*pgconn.Config, error) {
	u, q, err := splitURL(s)
	if err != nil {
		return nil, err
	}
	return configOf(u, q)
}

// ParseURL reads postgres://[user@]host[:port]/database?thread=NAME. Further parameters
// are the parameters of PostgreSQL's URLs, and schema, and durability=any. What is missing comes from the variables
// that PostgreSQL's own programs know: PGHOST, PGUSER, PGPASSFILE, PGSERVICE and so on. A
// password comes from there alone. No error repeats the URL.
func ParseURL(s string) (*Address, error) {
	u, q, err := splitURL(s)
	if err != nil {
		return nil, err
	}
	a := &Address{URL: s, Thread: q.Get("thread"), Schema: q.Get("schema")}
	a.hosts = 1
	if v := q.Get("durability"); v == "any" {
		a.weak = true
	} else if v != "" {
		if a.hosts, err = strconv.ParseInt(v, 10, 64); err != nil || a.hosts < 1 || a.hosts > mostHosts {
			return nil, fmt.Errorf("%w: durability is any, or a number of hosts, or left out", ErrURL)
		}
	}
	for _, ours := range []string{"thread", "schema", "durability"} {
		q.Del(ours)
	}
	if a.Schema == "" {
		a.Schema = DefaultSchema
	}
	if !isName(a.Thread, maxNameBytes) {
		return nil, fmt.Errorf("%w: thread is not a name of 1 to %d bytes", ErrURL, maxNameBytes)
	}
	if !IsIdentifier(a.Schema) {
		return nil, fmt.Errorf("%w: schema is not a name of 1 to %d bytes", ErrURL, maxIdentifier)
	}
	a.config, err = configOf(u, q)
	return a, err
}

// ParseSchema reads postgres://[user@]host[:port]/database?schema=NAME, as ParseURL does, of
// a database in which there is no thread, and returns the name of the schema: the one that
// is given here where the URL has none.
func ParseSchema(s, schema string) (*pgconn.Config, string, error) {
	u, q, err := splitURL(s)
	if err != nil {
		return nil, "", err
	}
	if q.Has("schema") {
		schema = q.Get("schema")
	}
	if !IsIdentifier(schema) {
		return nil, "", fmt.Errorf("%w: schema is not a name of 1 to %d bytes", ErrURL, maxIdentifier)
	}
	if q.Has("thread") {
		return nil, "", fmt.Errorf("%w: it names a thread", ErrURL)
	}
	q.Del("schema")
	config, err := configOf(u, q)
	return config, schema, err
}

// maxIdentifier is where PostgreSQL cuts off names.
const maxIdentifier = 63

// IsIdentifier reports whether PostgreSQL takes a name as it is, once it is quoted.
func IsIdentifier(s string) bool { return isName(s, maxIdentifier) }

func isName(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

// splitURL refuses a text that is not a URL of PostgreSQL, or that has a password in it. All
// parts but the name of the thread and its schema reach errors of pgconn and of the server, so
// a password is looked for in each.
func splitURL(s string) (*url.URL, url.Values, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || !strings.Contains(s, "://") {
		return nil, nil, ErrURL
	}
	if _, has := u.User.Password(); has {
		return nil, nil, ErrPassword
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, ErrURL
	}
	parts := []string{u.User.Username(), u.Host, u.Path, u.Fragment}
	for name, values := range q {
		if isSecret(name) {
			return nil, nil, ErrPassword
		}
		if name != "thread" && name != "schema" {
			parts = append(parts, values...)
		}
	}
	users := append([]string{u.User.Username()}, q["user"]...)
	if slices.ContainsFunc(parts, hasPassword) || slices.ContainsFunc(users, func(s string) bool { return strings.Contains(s, ":") }) {
		return nil, nil, ErrPassword
	}
	if strings.Contains(s, "#") {
		return nil, nil, fmt.Errorf("%w: a # in a name is written %%23", ErrURL)
	}
	return u, q, nil
}

// isSecret reports whether a parameter of that name has a secret. PGPASSFILE's is a path.
func isSecret(name string) bool {
	name = strings.ToLower(name)
	return name != "passfile" && slices.ContainsFunc([]string{"pass", "pwd", "secret", "token"}, func(s string) bool { return strings.Contains(name, s) })
}

// hasPassword reports whether a part has password=… or user:password@… in it.
func hasPassword(part string) bool {
	before, _, at := strings.Cut(part, "@")
	return at && strings.Contains(before, ":") || secretWord.MatchString(part)
}

var secretWord = regexp.MustCompile(`(?i)(password|passwd|pwd)\s*[=:]`)

// configOf reads the rest, which is PostgreSQL's.
func configOf(u *url.URL, q url.Values) (*pgconn.Config, error) {
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // to PostgreSQL a + is a +
	c, err := pgconn.ParseConfig(u.String())
	if err != nil {
		_, text, _ := strings.Cut(err.Error()[strings.LastIndex(err.Error(), "`")+1:], ": ") // behind the URL
		return nil, fmt.Errorf("%w: %s", ErrURL, text)
	}
	// What the URL leaves out comes from PGUSER, PGHOST, PGDATABASE and a service file, of which
	// errors print all three.
	names := []string{c.User, c.Host, c.Database}
	for _, f := range c.Fallbacks {
		names = append(names, f.Host)
	}
	if slices.ContainsFunc(names, hasPassword) || strings.Contains(c.User, ":") {
		return nil, fmt.Errorf("%w: the user, host or database of the environment has a password in it", ErrURL)
	}
	if !q.Has("connect_timeout") && os.Getenv("PGCONNECT_TIMEOUT") == "" {
		c.ConnectTimeout = connectTimeout
	}
	if _, set := c.RuntimeParams["application_name"]; !set {
		c.RuntimeParams["application_name"] = "thread"
	}
	// Of several hosts it is the primary that is meant.
	several := slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != c.Host || f.Port != c.Port })
	if several && !q.Has("target_session_attrs") && os.Getenv("PGTARGETSESSIONATTRS") == "" {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return c, nil
}

// quoted is a name as SQL writes it.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// searchPath has the schema alone: what others make in public, or as temporary tables, is
// not looked at.
func (a *Address) searchPath() string { return quoted(a.Schema) + ", pg_temp" }
