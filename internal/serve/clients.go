package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"thread/internal/api"
)

// Client is somebody who may ask over HTTP: a name for the log, and the token that says
// who asks.
type Client struct {
	Name   string
	Rights string // "read", "write" or "admin"
	Token  string
}

// ErrClients says that a list of clients is not one.
var ErrClients = errors.New("invalid list of clients")

// soleClient is the name of the client of a list that names none.
const soleClient = "token"

// ParseClients reads a list of clients: a token alone, which then has all rights, or on
// each line the name of a client, its rights and its token. Blank lines, and those that
// begin with #, count for nothing. Two have not the same name or token.
func ParseClients(text string) (list []Client, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		fields := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' })
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		c := Client{soleClient, api.Admin.String(), fields[0]}
		switch len(fields) {
		case 1:
		case 3:
			c = Client{fields[0], fields[1], fields[2]}
		default:
			return nil, fmt.Errorf("%w: line %d is not NAME RIGHTS TOKEN", ErrClients, n)
		}
		if rightsOf(c.Rights) == api.None {
			return nil, fmt.Errorf("%w: line %d: the rights are not read, write or admin", ErrClients, n)
		}
		if strings.ContainsFunc(c.Token+c.Name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("%w: line %d has other characters than visible ASCII", ErrClients, n)
		}
		for i := range list {
			if list[i].Name == c.Name || list[i].Token == c.Token {
				return nil, fmt.Errorf("%w: line %d has the name or token of another one", ErrClients, n)
			}
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: there is no line with one", ErrClients)
	}
	return list, nil
}

func rightsOf(name string) api.Rights {
	for r := api.Read; r <= api.Admin; r++ {
		if r.String() == name {
			return r
		}
	}
	return api.None
}

// client is a Client whose token cannot be read from memory.
type client struct {
	name   string
	rights api.Rights
	key    [sha256.Size]byte // of the token
}

// clients are who may ask. Without any, everybody may.
type clients struct{ list atomic.Pointer[[]client] }

func (c *clients) set(list []Client) {
	known := make([]client, len(list))
	for i, one := range list {
		known[i] = client{one.Name, rightsOf(one.Rights), sha256.Sum256([]byte(one.Token))}
	}
	c.list.Store(&known)
}

// open reports whether nobody is asked for a token.
func (c *clients) open() bool { return len(*c.list.Load()) == 0 }

// several reports whether there is more than one.
func (c *clients) several() bool { return len(*c.list.Load()) > 1 }

// find returns the client with that token, nil for none. How long it takes says nothing
// of the tokens.
func (c *clients) find(token string) (found *client) {
	key := sha256.Sum256([]byte(token))
	list := *c.list.Load()
	for i := range list {
		if subtle.ConstantTimeCompare(key[:], list[i].key[:]) == 1 {
			found = &list[i]
		}
	}
	return found
}

// still returns the client with the key of such a token, nil when it is no client any more.
func (c *clients) still(key string) *client {
	list := *c.list.Load()
	for i := range list {
		if string(list[i].key[:]) == key {
			return &list[i]
		}
	}
	return nil
}

// everybody is who comes where no token is asked for.
var everybody = &client{name: "everybody", rights: api.Admin}

// of returns who sends a request, by its token; nil for nobody who is known.
func (c *clients) of(q *http.Request) *client {
	if c.open() {
		return everybody
	}
	fields := q.Header.Values("Authorization")
	if len(fields) != 1 {
		return nil
	}
	scheme, token, _ := strings.Cut(fields[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	return c.find(token)
}

// SetClients exchanges who may ask over HTTP, while the server runs. Browsers that logged
// in with a token that is not there any more are logged out. It changes nothing where
// no token was asked for.
func (s *Server) SetClients(list []Client) {
	if w := s.web; w != nil && len(list) > 0 && !w.clients.open() {
		w.clients.set(list)
	}
}
