package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"thread/internal/address"
	"thread/internal/api"
)

// Client may ask over HTTP: a name for the log, the token that says who asks, and
// what the client may do.
type Client struct {
	Name      string
	Rights    string    // "read", "write", "admin", or "push" without reading
	Token     string    // at least MinToken characters, or "sha256:" and the 64 hexadecimal digits of its sum
	Threads   []string  // patterns of path.Match, of names or paths of threads; none: all
	Consumers []string  // the same, of consumers
	Until     time.Time // when the token ends; zero: never
}

// Scoped reports whether the client is for some threads or consumers only.
func (c *Client) Scoped() bool { return len(c.Threads)+len(c.Consumers) > 0 }

// MinToken is how many characters a token has at least.
const MinToken = 16

// strongToken is from how many characters on a token is not found by trying.
const strongToken = 24

// ErrClients says that a list of clients is not one.
var ErrClients = errors.New("invalid list of clients")

// soleClient is the name of the client of a list that names none.
const soleClient = "token"

// ParseClients reads a list of clients: a token alone, which then has all rights, or on
// each line the name of a client, its rights and its token, and what limits it:
// threads=PATTERN,..., consumers=PATTERN,..., until=TIME (RFC 3339). Blank lines, and
// those that begin with #, count for nothing. Two have not the same name or token.
func ParseClients(text string) (list []Client, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		fields := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' })
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		c, err := parseClient(fields)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d %w", ErrClients, n, err)
		}
		if slices.ContainsFunc(list, func(old Client) bool { return old.Name == c.Name || old.key() == c.key() }) {
			return nil, fmt.Errorf("%w: line %d has the name or token of another one", ErrClients, n)
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: there is no line with one", ErrClients)
	}
	return list, nil
}

func parseClient(fields []string) (c Client, err error) {
	switch {
	case len(fields) == 1:
		c = Client{Name: soleClient, Rights: api.Admin.String(), Token: fields[0]}
	case len(fields) == 2:
		return c, errors.New("is not NAME RIGHTS TOKEN")
	default:
		c = Client{Name: fields[0], Rights: fields[1], Token: fields[2]}
		for _, field := range fields[3:] {
			if err := c.limit(field); err != nil {
				return c, err
			}
		}
	}
	sum, hashed := strings.CutPrefix(c.Token, hashPrefix)
	switch {
	case rightsOf(c.Rights) == api.None:
		return c, errors.New("has other rights than push, read, write or admin")
	case strings.ContainsFunc(strings.Join(fields, ""), func(r rune) bool { return r <= ' ' || r > '~' }):
		return c, errors.New("has other characters than visible ASCII")
	case hashed && !isSum(sum):
		return c, errors.New("has no SHA-256 sum of 64 hexadecimal digits")
	case len(c.Token) < MinToken:
		return c, fmt.Errorf("has a token of less than %d characters", MinToken)
	}
	return c, nil
}

// limit reads one of the fields after the token.
func (c *Client) limit(field string) (err error) {
	name, value, _ := strings.Cut(field, "=")
	switch name {
	case "threads":
		c.Threads, err = patterns(value)
	case "consumers":
		c.Consumers, err = patterns(value)
	case "until":
		c.Until, err = time.Parse(time.RFC3339, value)
	default:
		return fmt.Errorf("has %q, which is not threads=, consumers= nor until=", field)
	}
	if err != nil {
		return fmt.Errorf("has %q: %w", field, err)
	}
	return nil
}

func patterns(value string) ([]string, error) {
	list := strings.Split(value, ",")
	for _, one := range list {
		if _, err := path.Match(one, ""); err != nil || one == "" {
			return nil, fmt.Errorf("%q is not a pattern", one)
		}
	}
	return list, nil
}

const hashPrefix = "sha256:"

// HashToken returns what may stand in a list of clients instead of a token.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

func isSum(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == sha256.Size
}

// key returns the sum of the client's token.
func (c *Client) key() (key [sha256.Size]byte) {
	if sum, ok := strings.CutPrefix(c.Token, hashPrefix); ok && isSum(sum) {
		_, _ = hex.Decode(key[:], []byte(sum))
		return key
	}
	return sha256.Sum256([]byte(c.Token))
}

func rightsOf(name string) api.Rights {
	for r := api.Read; r <= api.Push; r++ {
		if r.String() == name {
			return r
		}
	}
	return api.None
}

// client is a Client whose token cannot be read from memory.
type client struct {
	Client // without its token
	rights api.Rights
	sum    [sha256.Size]byte // of the token
	strong bool              // the token is not found by trying; one that is kept as a sum counts so
}

// ended reports whether the token counts no more.
func (c *client) ended() bool { return !c.Until.IsZero() && !time.Now().Before(c.Until) }

// allows reports whether the client may ask about a thread, by its name and path, and a
// consumer, "" for none.
func (c *client) allows(thread, consumer string) bool {
	of := func(list []string, names ...string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(pattern string) bool {
			return slices.ContainsFunc(names, func(name string) bool {
				ok, _ := path.Match(pattern, name)
				return ok
			})
		})
	}
	return of(c.Threads, thread, address.Base(thread)) && (consumer == "" || of(c.Consumers, consumer))
}

// clients are who may ask. Without any, everybody may.
type clients struct{ list atomic.Pointer[[]client] }

func (c *clients) set(list []Client) {
	known := make([]client, len(list))
	for i, one := range list {
		known[i] = client{Client: one, rights: rightsOf(one.Rights), sum: one.key(), strong: len(one.Token) >= strongToken}
		known[i].Token = ""
	}
	c.list.Store(&known)
}

// open reports whether no token is asked for.
func (c *clients) open() bool { return len(*c.list.Load()) == 0 }

// several reports whether there is more than one.
func (c *clients) several() bool { return len(*c.list.Load()) > 1 }

// find returns the client with that token, nil for none; only one with a strong token
// while others are not tried. How long it takes says nothing of the tokens.
func (c *clients) find(token string, strongOnly bool) (found *client) {
	sum := sha256.Sum256([]byte(token))
	list := *c.list.Load()
	for i := range list {
		if subtle.ConstantTimeCompare(sum[:], list[i].sum[:]) == 1 && token != "" && !list[i].ended() && (list[i].strong || !strongOnly) {
			found = &list[i]
		}
	}
	return found
}

// still returns the client with that sum of its token, nil when it is no longer a client.
func (c *clients) still(sum string) *client {
	list := *c.list.Load()
	for i := range list {
		if string(list[i].sum[:]) == sum && !list[i].ended() {
			return &list[i]
		}
	}
	return nil
}

// everybody is who comes where no token is asked for.
var everybody = &client{Client: Client{Name: "everybody"}, rights: api.Admin}

// bearer returns the token that a request carries, "" for none.
func bearer(q *http.Request) string {
	fields := q.Header.Values("Authorization")
	if len(fields) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(fields[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}
