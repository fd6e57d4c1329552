// Package address opens threads by their addresses. An address is what --thread takes: a
// directory, or a URL of a thread on a server.
//
// The package links no driver of a server. A program that links one registers it with
// SetDriver. The package is internal to this module and makes no promise to library users.
package address

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"thread/engine"
)

// Driver opens threads on a server.
type Driver interface {
	// Open returns a handle on the thread at the URL. It does not connect.
	Open(url string, opts []engine.Option) (*engine.Thread, error)
	// Init makes the thread. It returns engine.ErrExists where there is one.
	Init(ctx context.Context, url string) error
}

// ErrNoDriver says that this program links no driver for URLs.
var ErrNoDriver = errors.New("this program opens directories only")

// driver is nil in the programs that open directories only.
var driver Driver

// SetDriver registers the driver of this program, before any thread is opened.
func SetDriver(d Driver) { driver = d }

// IsURL reports whether the address is a URL, and so names a thread on a server.
func IsURL(address string) bool {
	scheme, _, found := strings.Cut(address, "://")
	return found && (strings.EqualFold(scheme, "postgres") || strings.EqualFold(scheme, "postgresql"))
}

// Open opens the thread at the address.
func Open(address string, opts ...engine.Option) (*engine.Thread, error) {
	switch {
	case !IsURL(address):
		return engine.Open(address, opts...)
	case driver == nil:
		return nil, ErrNoDriver
	}
	return driver.Open(address, opts)
}

// Init makes a thread at a URL.
func Init(ctx context.Context, url string) error {
	if driver == nil {
		return ErrNoDriver
	}
	return driver.Init(ctx, url)
}

// historyEnd ends the name of the thread that holds the history of another thread.
const historyEnd = "/history"

// History returns the URL of the history of the thread at that URL: the history is a separate thread
// in the same schema.
func History(of string) (string, error) {
	return rename(of, func(name string) string { return name + historyEnd })
}

// HistoryOf returns the URL of the thread whose history the thread at that URL is, "" for
// none.
func HistoryOf(address string) string {
	if !IsURL(address) || !strings.HasSuffix(Name(address), historyEnd) {
		return ""
	}
	of, _ := rename(address, func(name string) string { return strings.TrimSuffix(name, historyEnd) })
	return of
}

// Name returns the name of the thread in a URL, "" where there is none.
func Name(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Query().Get("thread")
}

// Of returns the thread whose history the thread at the address is, "" for none. of is
// [target.HistoryOf], for directories.
func Of(address string, of func(dir string) string) string {
	if IsURL(address) {
		return HistoryOf(address)
	}
	return of(address)
}

// Base returns the short name of the thread at the address: the last element of a directory, or
// the name in a URL.
func Base(address string) string {
	if IsURL(address) {
		return Name(address)
	}
	return filepath.Base(address)
}

func rename(address string, change func(name string) string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the URL cannot be read") // without the URL, which may hold a password
	}
	q := u.Query()
	q.Set("thread", change(q.Get("thread")))
	u.RawQuery = q.Encode()
	return u.String(), nil
}
